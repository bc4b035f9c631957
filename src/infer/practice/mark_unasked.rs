//! Marks that no sum asks for. In: a call of a function that sums the gradients of parameters with the mark that it is given. Out: the last such call of a file, where the file sets another mark on
//! parameters too and no text of the project speaks of that one again. Never: a mark that a rule knows what to do with elsewhere, or that anything reads. Source:
//! NeMo, `pipeline_parallel` of the conditioning of diffusion transformers. Next: `marks.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::near;
use super::own_part::helper;
use super::reducers::GRADIENTS;
use super::unshared::Unshared;
use super::view::View;
use crate::ir::{Const, LocalId, Rvalue};
use crate::source::{Name, Place};

/// Parts of names of marks for sums.
const SUMMED: &[&str] = &[
    "parallel",
    "reduce",
    "sum",
    "sync",
    "average",
    "shared",
    "replicated",
    "grad",
    "grads",
    "tp",
    "pp",
    "cp",
    "sp",
    "stage",
    "stages",
    "ranks",
];

/// `setattr(p, "pipeline_parallel", True)`, and `sum_marked(model, "sequence_parallel", group)` alone
pub fn never(view: &View<'_>, out: &mut Found) {
    let mut asked: Vec<(usize, Name)> = Vec::new();
    for step in 0..view.steps.len() {
        let Some(value @ Rvalue::Call { args, .. }) = view.value(step) else { continue };
        let Some((at, bound)) = helper(view, value) else { continue };
        let inner = near::shared(view, at);
        let mark = args.iter().enumerate().find_map(|(n, a)| {
            let mark = view.expr(&a.value).string().cloned()?;
            let param = inner.func.params.get(n + bound)?;
            asks(&inner, param.local).then_some(mark)
        });
        asked.extend(mark.map(|mark| (step, mark)));
    }
    let Some((last, _)) = asked.last() else { return };
    // What finishes gradients elsewhere may ask for any mark.
    let imports = |line: &str| line.contains("import ") && line.contains("finalize");
    if view.file().lines().any(imports) {
        return;
    }
    // A mark of another name is about something else than sums.
    let of_sums = |mark: &Name| mark != "allreduce" && SUMMED.iter().any(|word| near::has_part(mark, word));
    let Some((mark, set)) = marks_of(view)
        .into_iter()
        .find(|(mark, _)| of_sums(mark) && !asked.iter().any(|(_, m)| m == mark) && view.rules.mark(mark).is_none())
    else {
        return;
    };
    let name = mark.to_lowercase();
    let speaks = |text: &str| near::bare(text).matches(name.as_str()).count();
    let all = view.project.modules.ids().map(|m| view.files[view.project.file(m)].whole());
    let spoken: usize = all.filter(|text| text.contains(mark.as_str())).map(speaks).sum();
    if spoken == 1 {
        let asked = asked[0].1.clone();
        let mistake = Unshared::MarkUnasked { mark, asked, set };
        out.push((view.place(view.steps[*last].id), Practice::Unshared(mistake)));
    }
}

/// Whether a function sums the gradients of parameters with the mark that a parameter of it names.
fn asks(inner: &View<'_>, mark: LocalId) -> bool {
    let mark = inner.local_name(mark);
    let code = inner.text(inner.spot(inner.func.span));
    // The test may stand in a comprehension.
    let reads =
        code.split("getattr(").skip(1).any(|rest| near::has_word(rest.split(')').next().unwrap_or_default(), mark));
    reads && near::has_any(code, GRADIENTS) && inner.collectives().iter().any(|(_, call)| call.rule.op == "all_reduce")
}

/// The marks that functions of the file set on parameters by name: `setattr(p, "mark", True)`.
fn marks_of(view: &View<'_>) -> Vec<(Name, Place)> {
    near::functions(view, view.at.module)
        .into_iter()
        .flat_map(|at| {
            let function = near::shared(view, at);
            let set = |step: usize| match function.value(step)? {
                value @ Rvalue::Call { args, .. }
                    if near::written_name(&function, value).is_some_and(|n| n == "setattr") =>
                {
                    let mark = function.expr(&args.get(1)?.value).string().cloned()?;
                    let on = args.get(2).is_some_and(|a| function.expr(&a.value) == Expr::Const(Const::Bool(true)));
                    on.then(|| (mark, function.place(function.steps[step].id)))
                }
                _ => None,
            };
            (0..function.steps.len()).filter_map(set).collect::<Vec<_>>()
        })
        .collect()
}
