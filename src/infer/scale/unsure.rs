//! Factors that something outside may make right. In: a module. Out: whether a mistake is about parameters of a library that is not known,
//! which may scale their gradients itself, as an autograd function of the file does, about sizes that the file compares with the number of all ranks,
//! about a sum that a step may divide, about experts whose gradients the file scales once more, about gradients that are written anew, or a loss
//! whose weights come with the data or whose ranks count as many, as a comment says. Next: `verdict.rs`.

use super::elsewhere;
use super::experts;
use super::groups::WORLD;
use super::value::What;
use super::verdict::{Mistake, Wrong};
use crate::infer::practice::expr::Expr;
use crate::infer::practice::view::View;
use crate::infer::practice::{hidden_sum, near};
use crate::ir::{BinOp, FuncId, FuncKind, Operand, Rvalue, Stmt};
use crate::project::{FuncRef, ModuleId, Project, Resolved};
use crate::rules::RuleBook;
use crate::source::{Files, Name, Place};
use crate::types::{Factor, Scale};

/// Words of files in which something else scales gradients on their way.
const UNDOES: &[&str] = &[
    "gradient_average=False",
    "gradient_predivide_factor",
    "step_pre_hook",
    "register_hook(lambda",
    "register_full_backward",
    "set_custom_reduce_scatter",
];

/// What a module leaves open.
pub struct Unsure<'a> {
    project: &'a Project,
    rules: &'a RuleBook,
    files: &'a Files,
    module: ModuleId,
}

impl<'a> Unsure<'a> {
    pub fn of(project: &'a Project, rules: &'a RuleBook, files: &'a Files, module: ModuleId) -> Unsure<'a> {
        Unsure { project, rules, files, module }
    }

    /// Whether a mistake is about what is left open.
    pub fn is_about(&self, mistake: &Mistake) -> bool {
        let all = mistake.factor.powers().any(|(f, _)| matches!(f, Factor::Size(a) if a.name() == WORLD));
        all && self.compares(mistake)
            || self.of_library(mistake)
            || matches!(mistake.wrong, Wrong::Than(_)) && !is_followed(mistake) && self.scales_backwards()
            || self.sums_unseen(mistake)
            || mistake.wrong == Wrong::MeanOfMeans && self.says_equal(mistake)
            || matches!(mistake.wrong, Wrong::Mean | Wrong::MeanOfMeans) && comes_weighed(mistake)
            || mistake.wrong == Wrong::Mean && self.makes_up_in_rate()
            || self.writes_gradients(mistake)
            || self.undoes_means()
            || elsewhere::may_divide(self.project, self.rules, self.files, self.module, mistake)
            || experts::may_scale(self.project, self.rules, self.files, self.module, mistake)
    }

    /// Whether the file says that a wrapper takes no means, or has hooks that may undo them.
    fn undoes_means(&self) -> bool {
        let text = self.files[self.project.file(self.module)].whole();
        UNDOES.iter().any(|word| text.contains(word))
    }

    /// Whether a comment on the line of a mean, or the one above, says that each rank counts as many as the others.
    fn says_equal(&self, mistake: &Mistake) -> bool {
        let places = mistake.events.iter().map(|e| e.place).chain([mistake.place]);
        places.into_iter().any(|place| {
            let text = self.files[place.file].whole();
            let start = text[..place.span.start as usize].rfind('\n').map_or(0, |at| at + 1);
            let line = text[start..].lines().next().unwrap_or_default();
            let above = text[..start].lines().next_back().unwrap_or_default();
            let said = |line: &str| line.split_once('#').is_some_and(|(_, said)| said.contains("the same number of"));
            said(line) || above.trim_start().starts_with('#') && said(above)
        })
    }

    /// Whether the file multiplies the rate of plain gradient descent by the number of ranks: a step is the gradient times the rate there.
    fn makes_up_in_rate(&self) -> bool {
        let text = self.files[self.project.file(self.module)].whole();
        let rate = |line: &str| line.split_once("lr=").is_some_and(|(_, rate)| rate.contains("* dist.get_world_size("));
        text.lines().any(|line| line.contains("SGD(") && rate(line))
    }

    /// Whether a function with a mistake writes gradients anew from what it computes otherwise: from lists of all ranks' terms, or in arrays.
    fn writes_gradients(&self, mistake: &Mistake) -> bool {
        let places: Vec<Place> = mistake.events.iter().map(|e| e.place).chain([mistake.place]).collect();
        let (module, file) = (&self.project.modules[self.module], self.project.file(self.module));
        module.ir.funcs.iter_enumerated().any(|(func, ir)| {
            let within = |p: &Place| p.file == file && ir.span.start <= p.span.start && p.span.end <= ir.span.end;
            if ir.kind != FuncKind::Function || !places.iter().any(within) {
                return false;
            }
            let view = View::new(self.project, self.rules, self.files, FuncRef { module: self.module, func });
            let of_gradient = |step: usize, method: &str| match view.value(step) {
                Some(Rvalue::CallMethod { base, name, args }) if name == method => {
                    matches!(view.through(base), Expr::Attr(_, grad) if grad == "grad").then_some(args)
                }
                _ => None,
            };
            let mut computed = |e: &Expr| e.call_of("sum").is_some() || e.call_of("from_numpy").is_some();
            (0..view.steps.len()).any(|step| {
                let copied = of_gradient(step, "copy_").and_then(|args| args.first());
                copied.is_some_and(|from| view.through(&from.value).any(&mut computed))
                    || of_gradient(step, "zero_").is_some()
                        && (step..view.steps.len()).any(|later| of_gradient(later, "add_").is_some())
            })
        })
    }

    /// Whether the file compares a product of sizes of the factor with the number of all ranks.
    fn compares(&self, mistake: &Mistake) -> bool {
        let sizes: Vec<Name> = mistake
            .factor
            .powers()
            .filter_map(|(f, _)| match f {
                Factor::Size(a) if a.name() != WORLD => Some(Name::from(a.name())),
                _ => None,
            })
            .collect();
        let text = self.files[self.project.file(self.module)].whole();
        text.lines().any(|line| {
            let sides = ["==", "!="].iter().find_map(|op| line.split_once(op));
            // Of the number of all ranks alone only a line that insists on another one says something.
            let counts = !sizes.is_empty() || line.trim_start().starts_with("assert");
            sides.filter(|_| counts).is_some_and(|(left, right)| {
                let says = |side: &str| sizes.iter().all(|size| near::has_part(&words(side), size));
                left.contains(WORLD) && says(right) || right.contains(WORLD) && says(left)
            })
        })
    }

    /// Whether what a mistake is about lies in an attribute that a class of an unknown library makes.
    fn of_library(&self, mistake: &Mistake) -> bool {
        let shown = |attr: &str| {
            let inside = format!(".{attr}.");
            mistake.events.iter().any(|e| self.files[e.place.file].slice(e.place.span).contains(&inside))
        };
        let funcs = self.project.modules[self.module].ir.funcs.ids();
        funcs.into_iter().any(|func: FuncId| {
            let ir = &self.project.modules[self.module].ir.funcs[func];
            if ir.class.is_none() || ir.name != "__init__" {
                return false;
            }
            let view = View::new(self.project, self.rules, self.files, FuncRef { module: self.module, func });
            view.steps.iter().any(|step| match step.stmt {
                Stmt::SetAttr { base, name, value } => {
                    near::is_self(&view, base) && shown(name) && self.is_unknown(&view, value)
                }
                _ => false,
            })
        })
    }

    /// Whether something that a factor is made of goes, under another name, where it may be summed.
    fn sums_unseen(&self, mistake: &Mistake) -> bool {
        // A factor of rounds and stages is none of ranks.
        if matches!(mistake.wrong, Wrong::Divided | Wrong::EachStage) {
            return false;
        }
        let all = mistake.events.iter().map(|e| e.place).chain(std::iter::once(mistake.place));
        self.changes(&all.collect::<Vec<_>>(), mistake.wrong != Wrong::Metric)
    }

    /// Whether a number at one of these places may be a sum over ranks that is not seen.
    pub fn hides(&self, places: &[Place]) -> bool {
        self.changes(places, false)
    }

    fn changes(&self, places: &[Place], of_gradient: bool) -> bool {
        let file = self.project.file(self.module);
        let here: Vec<Place> = places.iter().copied().filter(|p| p.file == file).collect();
        let funcs = self.project.modules[self.module].ir.funcs.ids();
        funcs.into_iter().any(|func: FuncId| {
            let span = self.project.modules[self.module].ir.funcs[func].span;
            let within = |p: &Place| span.start <= p.span.start && p.span.end <= span.end;
            let at = FuncRef { module: self.module, func };
            here.iter().any(within)
                && hidden_sum::may_be(&View::new(self.project, self.rules, self.files, at), &here, true, of_gradient)
        })
    }

    /// Whether an autograd function of the file multiplies the gradient that it passes on, of whatever it is applied to: `grad * ctx.scale`.
    fn scales_backwards(&self) -> bool {
        let funcs = self.project.modules[self.module].ir.funcs.ids();
        funcs.into_iter().any(|func: FuncId| {
            let ir = &self.project.modules[self.module].ir.funcs[func];
            let Some(grad) = ir.params.get(1).filter(|_| ir.class.is_some() && ir.name == "backward") else {
                return false;
            };
            let view = View::new(self.project, self.rules, self.files, FuncRef { module: self.module, func });
            let is_gradient = |o: &Operand| view.through(o) == Expr::Local(grad.local);
            (0..view.steps.len()).any(|i| match view.value(i) {
                Some(
                    Rvalue::Binary { op: BinOp::Mul | BinOp::Div, left, right }
                    | Rvalue::InPlace { op: BinOp::Mul | BinOp::Div, left, right },
                ) => is_gradient(left) || is_gradient(right),
                Some(Rvalue::CallMethod { base, name, .. }) => {
                    super::written::operation(name).is_some_and(|op| matches!(op, BinOp::Mul | BinOp::Div))
                        && is_gradient(base)
                }
                _ => false,
            })
        })
    }

    /// Whether a value is made by something outside the project that no rule tells of.
    fn is_unknown(&self, view: &View<'a>, value: &Operand) -> bool {
        let Some((_, Rvalue::Call { callee, .. })) = view.source(value) else { return false };
        let Some(path) = view.through(callee).path().cloned() else { return false };
        let outside = matches!(self.project.path(&path), Resolved::External(_));
        outside && !path.starts_with("torch.") && self.rules.get(&path).is_none()
    }
}

/// Whether something that multiplies a gradient is among what the mistake is made of.
fn is_followed(mistake: &Mistake) -> bool {
    mistake.events.iter().any(|e| matches!(e.what, What::Times(_)))
}

/// Whether a loss is multiplied by a weight that the data brings: who makes that may have put the number of ranks into it.
fn comes_weighed(mistake: &Mistake) -> bool {
    let of_data = |name: &str| {
        let (of, last) = name.rsplit_once('.').unwrap_or_default();
        matches!(of, "batch" | "data" | "sample" | "inputs" | "micro_batch") && last.contains("weight")
    };
    let has = |scale: &Scale| {
        scale.known().is_some_and(|m| m.powers().any(|(f, _)| matches!(f, Factor::Named(name) if of_data(name))))
    };
    mistake.events.iter().any(|e| matches!(&e.what, What::Times(scale) if has(scale)))
}

/// The names in a text, between underscores.
fn words(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect()
}
