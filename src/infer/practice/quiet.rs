//! Code that sums no gradients over ranks, as far as it shows. In: a view, or a text. Out: whether the text of a file names nothing that may reduce, send or average, but
//! for numbers that are reported; whether all that runs between two steps is known to do nothing of the kind. Never: a guess: what is called
//! and not known may reduce. Next: `taken_grads.rs` and the other checks that ask.

use super::data_sum::HARMLESS;
use super::expr::Expr;
use super::near;
use super::view::View;
use super::wrapped::parameters_of;
use crate::ir::{LocalId, Operand, Rvalue};
use crate::project::{ModuleId, Resolved};
use crate::source::Name;
use std::ops::Range;

/// What may bring gradients or parameters together, or hands them to what does.
const TOGETHER: &[&str] = &[
    "_hook(",
    "all_gather",
    "average",
    "aggregate",
    "gossip",
    "hvd",
    "horovod",
    "sync_grad",
    "grad_sync",
    "sync_param",
    "finalize",
    "no_sync",
    "send(",
    "p2pop",
    "xla",
    "speed",
    "engine",
    "fabric",
    "dtensor",
    "fully_shard",
    "bucket",
    "coalesc",
    "broadcast",
    "zeroredundancy",
    "distributedoptimizer",
    "comm_op",
];
/// Names that have such words in them and do nothing with gradients.
const OTHER_NAMES: &[&str] = &["averagemeter", "broadcast_buffers", "sync_gradients", "broadcast_to", "moving_average"];
/// What a sum is of that is only reported.
const REPORTED: &[&str] = &["loss", "metric", "correct", "count", "total", "acc"];
/// Methods that do nothing with gradients of other ranks.
const METHODS: &[&str] = &[
    "scale",
    "unscale_",
    "update",
    "backward",
    "clip_grad_norm_",
    "clip_grad_value_",
    "set_postfix",
    "set_description",
    "write",
    "add_scalar",
    "log",
    "warning",
    "train",
    "eval",
    "numpy",
    "extend",
    "update_parameters",
    "get_last_lr",
    "perf_counter",
    "time",
    "zero_",
];

/// Packages of which the names that a program uses say what they do: torch and its kin, and what comes with Python.
const KNOWN: &[&str] = &[
    "torch",
    "torchvision",
    "torchaudio",
    "__future__",
    "argparse",
    "collections",
    "contextlib",
    "copy",
    "csv",
    "dataclasses",
    "datetime",
    "enum",
    "functools",
    "itertools",
    "json",
    "logging",
    "math",
    "os",
    "pathlib",
    "random",
    "sys",
    "time",
    "typing",
    "warnings",
    "tqdm",
];

/// Whether a program is read whole: what it imports is known by name (`also`: packages that the check itself knows), nothing goes by another
/// name than its own, and the text, without comments and in lowercase, has none of these words.
pub fn is_read_whole(text: &str, also: &[&str], without: &[&str]) -> bool {
    let imports =
        text.lines().map(str::trim_start).filter(|line| line.starts_with("import ") || line.starts_with("from "));
    let known = |line: &str| {
        let named = line.split_once(' ').map_or("", |(_, rest)| rest);
        let heads = if line.starts_with("from ") { vec![named] } else { named.split(',').collect() };
        let head = |one: &str| {
            let end = one.trim().find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(one.trim().len());
            one.trim()[..end].to_string()
        };
        let from = line.starts_with("from ");
        let renamed = from
            && line.contains("distributed")
            && line.contains(" as ")
            && !line.contains(" as ddp")
            && !line.contains(" as fsdp");
        heads.into_iter().map(head).all(|h| KNOWN.contains(&h.as_str()) || also.contains(&h.as_str()))
            && !renamed
            && !line.contains('*')
    };
    imports.clone().all(known) && !near::has_any(text, without)
}

/// Whether the file of a function names nothing that may sum gradients.
pub fn is_file_quiet(view: &View<'_>) -> bool {
    is_text_quiet(&near::bare(view.file()))
}

/// The same of a text without comments, in lowercase.
pub fn is_text_quiet(text: &str) -> bool {
    let text = OTHER_NAMES.iter().fold(text.to_string(), |text, name| text.replace(name, ""));
    !near::has_any(&text, TOGETHER) && !reduces(&text)
}

/// Whether a text calls or names a reduction of anything but what is reported.
fn reduces(text: &str) -> bool {
    let lines = text.lines().map(str::trim_start);
    lines.filter(|line| !line.starts_with("import ") && !line.starts_with("from ")).any(|line| {
        line.match_indices("reduce").any(|(at, word)| {
            let rest = &line[at + word.len()..];
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
            match rest[end..].strip_prefix('(') {
                Some(given) => {
                    let given = given.split(')').next().unwrap_or_default();
                    !line[..at].contains("def ") && !rest.starts_with("lronplateau") && !near::has_any(given, REPORTED)
                }
                None => end == 0 && !rest.starts_with('='),
            }
        })
    })
}

/// Whether nothing that runs in these steps may sum gradients. `with`: an object whose methods are known by the text of the file.
pub fn is_quiet(view: &View<'_>, mut steps: Range<usize>, with: Option<LocalId>) -> bool {
    steps.all(|step| is_step_quiet(view, step, with))
}

/// Whether a model, or its parameters, are given in these steps to something that may bring them together.
pub fn is_handed_on(view: &View<'_>, model: &Expr, mut steps: Range<usize>, with: Option<LocalId>) -> bool {
    steps.any(|step| {
        let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(step) else { return false };
        let given = args.iter().any(|arg| {
            view.expr(&arg.value) == *model || parameters_of(view, &arg.value).is_some_and(|of| of == *model)
        });
        given && !is_step_quiet(view, step, with)
    })
}

fn is_step_quiet(view: &View<'_>, step: usize, with: Option<LocalId>) -> bool {
    let Some(value) = view.value(step) else { return true };
    match value {
        Rvalue::Call { callee, .. } => {
            let path = match view.through(callee) {
                Expr::Path(path) => path,
                Expr::Local(local) => return says_of_model(view.local_name(local)),
                other => return other.last_name().is_some_and(says_of_model),
            };
            is_path_quiet(view, &path)
        }
        Rvalue::CallMethod { base, name, .. } => {
            let known = HARMLESS.contains(&name.as_str())
                || METHODS.contains(&name.as_str())
                || view.rules.tensor_method(name).is_some()
                || near::local(base).is_some_and(|local| with == Some(local));
            match view.callee(value) {
                Some(path) if !path.starts_with('.') => is_path_quiet(view, &path),
                _ => (known && is_each_quiet(view, name)) || is_own(view, base, name),
            }
        }
        _ => true,
    }
}

/// Whether the step of an optimizer sums nothing: torch makes it, or no class of the project has a step that may.
pub fn is_optimizer_quiet(view: &View<'_>, optimizer: &Operand) -> bool {
    let of_torch = |view: &View<'_>, made: &Expr| match made {
        Expr::Call { callee, .. } => near::path(view, callee).is_some_and(|path| path.starts_with("torch.optim.")),
        _ => false,
    };
    let expr = view.expr(optimizer);
    let kept = near::own_attribute(view, &expr).zip(near::class_of(view)).is_some_and(|(name, class)| {
        let assigned = near::assigned(view, class, name);
        !assigned.is_empty() && assigned.iter().all(|(method, _, value)| of_torch(method, &method.through(value)))
    });
    kept || of_torch(view, &view.through(optimizer)) || is_each_quiet(view, &Name::from("step"))
}

/// Whether a method is one of the own object: the text of the file shows what it does.
fn is_own(view: &View<'_>, base: &Operand, name: &str) -> bool {
    near::is_self(view, base) && near::own_method(view, name).is_some()
}

/// Whether the methods of that name in the project stand in files that sum nothing. Steps of optimizers do what they say.
fn is_each_quiet(view: &View<'_>, name: &Name) -> bool {
    let all = view.project.methods_named(name);
    all.iter().all(|(class, _)| class.module == view.at.module || is_module_quiet(view, class.module))
}

fn is_path_quiet(view: &View<'_>, path: &str) -> bool {
    match view.project.path(path) {
        Resolved::Func(at) => at.module == view.at.module || is_module_quiet(view, at.module),
        Resolved::Class(at) => at.module == view.at.module || is_module_quiet(view, at.module),
        _ => {
            !path.contains('.')
                || ["torch.", "math.", "time.", "numpy.", "builtins."].iter().any(|p| path.starts_with(p))
        }
    }
}

fn is_module_quiet(view: &View<'_>, module: ModuleId) -> bool {
    is_text_quiet(&near::bare(view.files[view.project.file(module)].whole()))
}

/// Whether a variable that is called is a model or a loss, by its name.
fn says_of_model(name: &str) -> bool {
    near::has_any(&name.to_lowercase(), &["loss", "model", "net", "criterion", "autocast", "print"])
}
