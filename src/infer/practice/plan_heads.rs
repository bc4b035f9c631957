//! Entries of a plan of styles whose tensors leave as plain ones. In: a function with a dict from paths of modules to styles, and its file. Out: a
//! head that gives its part of the vocabulary as a plain tensor where the loss runs under the context that takes distributed ones; a norm
//! behind a projection that is split by heads, whose own style keeps its weight replicated. Never: a file that wraps outputs or sums
//! gradients itself. Source: torch.distributed.tensor.parallel, `loss_parallel`: "the input is sharded on the class dimension" as a DTensor;
//! `ColwiseParallel`, `use_local_output`. Next: `style_plan.rs`, for norms that a plan leaves out.

use super::Found;
use super::expr::Expr;
use super::found::{Placements, Practice};
use super::near;
use super::view::View;
use crate::ir::{ArgKind, BuildKind, Const, Item, Operand, Rvalue, UnOp};
use crate::project::Resolved;
use crate::source::{Name, Place};

/// The context, and the style that splits a result.
pub const CONTEXT: &str = "loss_parallel";
const SPLITS: &str = "ColwiseParallel";
/// What heads are called.
const HEADS: &[&str] = &["output", "lm_head", "head", "output_layer", "unembed", "embed_out", "output_projection"];
/// What makes distributed tensors of outputs, or computes the loss of parts, in lowercase.
const WRAPS: &[&str] = &[
    "from_local(",
    "preparemoduleoutput",
    "use_local_output=false",
    "use_local_output = false",
    "use_local_output\": false",
    "use_local_output', false",
    "vocab_parallel",
    "vocabparallel",
];
/// What sums gradients in a way of its own, and code that has none, in lowercase.
const SUMS: &[&str] =
    &["partial(", "_hook(", "all_reduce", "reduce_scatter", "no_grad", "affine=", "inference_mode", "requires_grad"];
/// What a style that splits nothing does with the module.
const REPLICATES: &[&str] = &["distribute_module(", "from_local(", "Replicate()"];

/// An entry: the path up to the last component, that one, the arguments of its style, and where that is made.
struct Entry {
    parent: Name,
    leaf: Name,
    style: Expr,
    args: Vec<(ArgKind, Expr)>,
    place: Place,
}

impl Entry {
    fn keyword(&self, name: &str) -> Option<&Expr> {
        self.args.iter().find(|(kind, _)| matches!(kind, ArgKind::Keyword(n) if n == name)).map(|(_, value)| value)
    }

    /// Whether it may have arguments that do not stand there.
    fn is_open(&self) -> bool {
        self.args.iter().any(|(kind, _)| matches!(kind, ArgKind::Star | ArgKind::DoubleStar))
    }

    fn is(&self, style: &str) -> bool {
        self.style.last_name() == Some(style)
    }
}

/// `{"output": ColwiseParallel(output_layouts=Shard(-1), use_local_output=True)}`, and `with loss_parallel():`
pub fn local_heads(view: &View<'_>, out: &mut Found) {
    let file = view.file();
    let bare = near::bare(file);
    if near::has_any(&bare, WRAPS) || view.files.any_says("DTensor.from_local(") && bare.contains("import") {
        return;
    }
    let context = entered(view);
    for entry in (0..view.steps.len()).flat_map(|step| entries(view, step)) {
        let is_head = HEADS.contains(&entry.leaf.as_str()) && entry.is(SPLITS) && !entry.is_open();
        let splits = entry.keyword("output_layouts").is_none_or(|layouts| layouts.any(&mut is_last_dim));
        let is_local = entry.keyword("use_local_output").is_none_or(|e| *e == Expr::Const(Const::Bool(true)));
        // A plan that asks for the option itself says what the loss is.
        let is_asked = || context.is_some() || view.text(entry.place).contains(CONTEXT);
        if is_head && splits && is_local && is_asked() {
            let found = Placements::LocalHead { head: entry.leaf, context };
            out.push((entry.place, Practice::Placements(found)));
        }
    }
}

/// `{"attn.wq": ColwiseParallel(), "attn.q_norm": Replicated()}`
pub fn kept_norms(view: &View<'_>, out: &mut Found) {
    let text = near::bare(view.file());
    if near::has_any(&text, SUMS) {
        return;
    }
    for step in 0..view.steps.len() {
        let entries = entries(view, step);
        for norm in &entries {
            let Some(letter) = normed(&norm.leaf) else { continue };
            if near::summed_elsewhere(view, &norm.leaf) {
                continue;
            }
            let beside = || entries.iter().filter(|other| other.parent == norm.parent);
            let splits = |other: &&Entry| other.is(SPLITS) && projects(&other.leaf, letter) && other.args.is_empty();
            let Some(source) = beside().find(splits) else { continue };
            // Of queries alone it may be the norm of a latent, before the projection.
            let other = |e: &Entry| normed(&e.leaf).is_some_and(|l| l != letter) && replicates(view, e).is_some();
            if !beside().any(other) || is_applied_before(&text, &norm.leaf) {
                continue;
            }
            // A projection in two steps may have its norm between them.
            let in_steps = |other: &Entry| near::has_any(&other.leaf, &["_a", "_b", "lora", "down", "up", "compress"]);
            if beside().any(in_steps) {
                continue;
            }
            if let Some(made) = replicates(view, norm) {
                let style = Name::from(norm.style.last_name().unwrap_or_default());
                let (place, source) = (norm.place, source.leaf.clone());
                let found = Placements::NormKept { norm: norm.leaf.clone(), source, style, made };
                out.push((place, Practice::Placements(found)));
            }
        }
    }
}

/// Whether the file applies a norm, and not to what a projection of queries or keys gives.
fn is_applied_before(text: &str, norm: &str) -> bool {
    let call = format!("self.{norm}(");
    let given = |at: usize| text[at + call.len()..].trim_start();
    let of_projection = |rest: &str| {
        let first = rest.trim_start_matches("self.").split(['(', '.', ')', ',']).next().unwrap_or_default();
        projects(first, 'q') || projects(first, 'k') || matches!(first, "q" | "k" | "xq" | "xk" | "query" | "key")
    };
    text.match_indices(&call).any(|(at, _)| !of_projection(given(at)))
}

/// `q` of `q_norm` and of `q_layernorm`.
fn normed(leaf: &str) -> Option<char> {
    let (first, rest) = leaf.split_once('_')?;
    let letter = match first {
        "q" | "query" => 'q',
        "k" | "key" => 'k',
        _ => return None,
    };
    rest.contains("norm").then_some(letter)
}

/// Whether a projection is that of queries, or of keys.
fn projects(leaf: &str, letter: char) -> bool {
    let names: &[&str] = match letter {
        'q' => &["wq", "q_proj", "to_q", "w_q", "query", "q_linear", "linear_q"],
        _ => &["wk", "k_proj", "to_k", "w_k", "key", "k_linear", "linear_k"],
    };
    names.contains(&leaf)
}

/// Where a style of the project wraps what a module is given as replicated, if that is all that it does.
fn replicates(view: &View<'_>, entry: &Entry) -> Option<Place> {
    let Resolved::Class(class) = view.project.path(entry.style.path()?) else { return None };
    let span = view.project.class(class).span;
    let text = view.files[view.project.file(class.module)].slice(span);
    let other = ["Shard(", "Partial(", "grad_placements", "redistribute("];
    let all = REPLICATES.iter().all(|word| text.contains(word)) && !near::has_any(text, &other);
    let at = text.find("from_local(").filter(|_| all && entry.args.is_empty())?;
    let start = span.start + u32::try_from(at).ok()?;
    let end = start + "from_local".len() as u32;
    Some(Place { file: view.project.file(class.module), span: crate::source::Span::new(start, end) })
}

/// Where the file enters the context.
fn entered(view: &View<'_>) -> Option<Place> {
    near::functions(view, view.at.module).into_iter().find_map(|at| {
        let site = near::shared(view, at);
        let enters = |step: &usize| {
            let callee = site.value(*step).and_then(|value| site.callee(value));
            callee.is_some_and(|path| path.starts_with("torch.") && path.ends_with(".loss_parallel"))
        };
        (0..site.steps.len()).find(enters).map(|step| site.place(site.steps[step].id))
    })
}

/// `Shard(-1)`
fn is_last_dim(layout: &Expr) -> bool {
    let last = |e: &Expr| match e {
        Expr::Const(Const::Int(dim)) => *dim == -1,
        Expr::Unary(UnOp::Neg, of) => **of == Expr::Const(Const::Int(1)),
        _ => false,
    };
    layout.call_of("Shard").is_some_and(|args| args.first().is_some_and(|(_, dim)| last(dim)))
}

/// The entries of a dict from paths to styles.
fn entries(view: &View<'_>, step: usize) -> Vec<Entry> {
    let Some(Rvalue::Build { kind: BuildKind::Dict, items }) = view.value(step) else { return Vec::new() };
    let mut out = Vec::new();
    for pair in items.chunks(2) {
        let [Item::One(Operand::Const(Const::Str(key))), Item::One(style)] = pair else { continue };
        let Expr::Call { callee, args, step } = view.through(style) else { continue };
        let (parent, leaf) = key.rsplit_once('.').unwrap_or(("", key));
        let place = view.place(view.steps[step].id);
        out.push(Entry { parent: Name::from(parent), leaf: Name::from(leaf), style: *callee, args, place });
    }
    out
}
