//! Parameters that pass through a function whose backward only multiplies the gradient. In: classes of the project. Out: [`Applied`],
//! and the finaliser that scales the same parameters once more. Never: a factor without a mark that both sides ask for.
//! Next: `verdict.rs`.

use super::Run;
use super::value::{Event, State, Val, What};
use super::verdict::{Mistake, Wrong};
use crate::infer::practice::asked::{Asked, Topic};
use crate::infer::practice::near;
use crate::infer::practice::view::View;
use crate::infer::settings::Settings;
use crate::ir::{Const, FuncKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Files, Name, Place};
use crate::types::Scale;

/// A factor that gradients of a parameter get on their way.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    pub parameter: Name,
    /// Marks of the parameter with their values.
    pub marks: Vec<(Name, bool)>,
    pub factor: Scale,
    pub place: Place,
}

/// The factors that the classes of a module apply to their own parameters.
pub fn of_module(
    project: &Project,
    rules: &RuleBook,
    files: &Files,
    settings: &Settings,
    asked: &Asked,
    module: ModuleId,
) -> Vec<Applied> {
    let text = files[project.file(module)].whole();
    if !asked.shown(module, text).speaks_of(Topic::Applies)
        || !text.contains(".apply(self.")
        || !text.contains("Parameter(")
    {
        return Vec::new();
    }
    let mut out = Vec::new();
    for (func, f) in project.modules[module].ir.funcs.iter_enumerated() {
        if f.kind != FuncKind::Function || f.class.is_none() {
            continue;
        }
        let view = View::new(project, rules, files, FuncRef { module, func });
        for step in 0..view.steps.len() {
            out.extend(applied(&view, step, settings));
        }
    }
    out
}

/// `Scale.apply(self.weight, factor)`
fn applied(view: &View<'_>, step: usize, settings: &Settings) -> Option<Applied> {
    let Some(Rvalue::CallMethod { base, name, args }) = view.value(step) else { return None };
    if name != "apply" || args.len() != 2 {
        return None;
    }
    let path = view.through(base).path()?.clone();
    let crate::project::Resolved::Class(class) = view.project.path(&path) else { return None };
    if !multiplies(view, class) {
        return None;
    }
    let weight = view.expr(&args[0].value);
    let parameter = near::own_attribute(view, &weight)?.clone();
    let own = near::class_of(view)?;
    let marks = marks(view, own, &parameter);
    if marks.is_empty() {
        return None;
    }
    let mut run = Run::new(view.project, view.rules, view.files, settings, &[], view.at.module);
    let factor = run.of_method(view.at, &args[1].value)?;
    Some(Applied { parameter, marks, factor, place: view.place(view.steps[step].id) })
}

/// Whether a function returns its first argument, and its backward the gradient times something.
fn multiplies(view: &View<'_>, class: ClassRef) -> bool {
    let method = |name: &str| {
        let (_, func) = view.project.class(class).methods.iter().find(|(n, _)| n == name)?;
        Some(near::other(view, FuncRef { module: class.module, func: *func }))
    };
    let (Some(forward), Some(backward)) = (method("forward"), method("backward")) else { return false };
    let returned = |v: &View<'_>| {
        v.steps.iter().find_map(|s| match s.stmt {
            Stmt::Return { value } => Some(v.expr(value)),
            _ => None,
        })
    };
    use crate::infer::practice::expr::Expr;
    let first = forward.func.params.get(1).map(|p| p.local);
    let same = matches!(returned(&forward), Some(Expr::Local(l)) if Some(l) == first);
    let grad = backward.func.params.get(1).map(|p| p.local);
    let product = |e: &Expr| match e {
        Expr::Binary(crate::ir::BinOp::Mul, a, b) => {
            [a, b].iter().any(|x| matches!(&***x, Expr::Local(l) if Some(*l) == grad))
        }
        _ => false,
    };
    let times = match returned(&backward) {
        Some(Expr::Build(items)) => items.first().is_some_and(product),
        Some(other) => product(&other),
        None => false,
    };
    same && times
}

/// The marks that the methods of a class set on a parameter.
fn marks(view: &View<'_>, class: crate::ir::ClassId, parameter: &str) -> Vec<(Name, bool)> {
    let mut out = Vec::new();
    for method in near::methods(view, class) {
        for step in 0..method.steps.len() {
            match (method.steps[step].stmt, method.value(step)) {
                (Stmt::SetAttr { base, name, value: Operand::Const(Const::Bool(b)) }, _)
                    if near::own_attribute(&method, &method.expr(base)).is_some_and(|n| n == parameter) =>
                {
                    out.push((name.clone(), *b));
                }
                (_, Some(Rvalue::Call { callee: Operand::Global(f), args })) if f == "setattr" && args.len() == 3 => {
                    let of = method.expr(&args[0].value);
                    let mark = method.expr(&args[1].value);
                    if let (Some(of), Some(mark), Operand::Const(Const::Bool(b))) =
                        (near::own_attribute(&method, &of), mark.string(), &args[2].value)
                        && of == parameter
                    {
                        out.push((mark.clone(), *b));
                    }
                }
                _ => {}
            }
        }
    }
    out
}

impl<'a> Run<'a> {
    /// What an operand of a method is as a factor, after the constructor of its class.
    fn of_method(&mut self, at: FuncRef, operand: &Operand) -> Option<Scale> {
        let body = FuncRef { module: at.module, func: crate::source::Idx::from_index(0) };
        let start = self.body(body);
        let (state, object) = self.instances(at, start).into_iter().next()?;
        let view = self.view(at);
        let expr = view.through(operand);
        let attr = near::own_attribute(&view, &expr)?.clone();
        let Val::Object(id) = object else { return None };
        let value = self.attribute(id, &attr, &state)?.clone();
        self.factor(&value).filter(|s| s.known().is_some_and(|m| !m.is_number()))
    }

    /// Parameters that a finaliser divides like all others, and that were scaled before on their own.
    pub fn twice(&self, state: &State) -> Option<Mistake> {
        let classes: Vec<_> = state.trained().filter(|c| !c.events.is_empty()).collect();
        for applied in self.applied {
            let is = |facts: &std::collections::BTreeMap<Name, bool>| {
                applied.marks.iter().any(|(mark, value)| facts.get(format!("mark {mark}").as_str()) == Some(value))
            };
            let Some(own) = classes.iter().find(|c| is(&c.facts)) else { continue };
            let Some(other) = classes.iter().find(|c| !is(&c.facts)) else { continue };
            let ((a, over), (b, _)) = (own.total(), other.total());
            let divides = |w: &What| matches!(w, What::Over(_) | What::Times(_) | What::Averaged(_));
            if a != b || !own.events.iter().any(|e| divides(&e.what)) {
                continue;
            }
            let Some(factor) = applied.factor.known().cloned() else { continue };
            let first = Event { what: What::Times(applied.factor.clone()), place: applied.place, call: None };
            let events = std::iter::once(first).chain(own.events.iter().cloned()).collect();
            return Some(Mistake {
                wrong: Wrong::Than(super::verdict::name(other, state)),
                place: applied.place,
                who: applied.parameter.clone(),
                factor,
                summed: over,
                events,
                beside: false,
            });
        }
        None
    }
}
