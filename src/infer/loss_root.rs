//! Losses where they leave the program that is seen: returned by a loss function, or computed from the only module of a file. In: the root
//! under execution. Out: the module that a parameter without an annotation stands for, the parameters that are data beside it, and a
//! returned loss of which every rank of a tensor-parallel axis counts the whole. Never: a file with several models, a class of losses, one
//! that the function makes itself, or a parameter whose name says another thing. Next: `root.rs`, which asks; `intrinsics.rs` for `backward()`.

use super::finding::{FindingKind, OperandAt};
use super::machine::Machine;
use super::practice::expr::Expr;
use super::practice::view::View;
use super::value::Value;
use crate::ir::{LocalId, Operand, Param, ParamKind, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::source::{Files, Name};
use crate::types::{Axis, AxisState, AxisType, Spmd, Tri};

/// Names of parameters that are models.
const MODELS: &[&str] =
    &["model", "head", "critic", "policy", "actor", "net", "module", "reward_model", "value_model", "value_head"];
/// Words in names of data of which a rank has only a part.
const PARTS: &[&str] = &["local", "shard", "part", "own", "rank", "chunk", "split"];
/// Ends of names of what computes a loss from what a model gives.
const LOSSES: &[&str] = &["loss", "criterion", "objective", "crit"];
/// The axis on which all ranks have the same data.
const SAME_DATA: &str = "tp";
/// How many calls are followed from an object to its name.
const MOST_CALLS: usize = 4;
/// Classes of a file that are looked at; more are a library.
const MOST_CLASSES: usize = 8;

/// The one module of a file that nothing else in it makes, if a parameter of this name can only be that.
pub(super) fn sole_module(project: &Project, files: &Files, module: ModuleId, param: &Param) -> Option<ClassRef> {
    let name = param.name.to_lowercase();
    if param.has_default || param.hint.is_some() || param.kind != ParamKind::Normal {
        return None;
    }
    let ir = &project.modules[module].ir;
    if ir.classes.is_empty() || ir.classes.len() > MOST_CLASSES {
        return None;
    }
    let like = |class: &str| is_called(&param.name, class);
    if !MODELS.contains(&name.as_str()) && !ir.classes.iter().any(|c| like(&c.name)) {
        return None;
    }
    let text = files[project.file(module)].whole();
    let spans: Vec<_> = ir.classes.ids().map(|c| (c, ir.classes[c].span)).collect();
    let has = |class, method: &str| ir.classes[class].methods.iter().any(|(n, _)| n == method);
    let named = |class| {
        let own: &str = &ir.classes[class].name;
        spans.iter().any(|(other, span)| {
            *other != class && text.get(span.start as usize..span.end as usize).is_some_and(|t| t.contains(own))
        })
    };
    let mut roots = ir.classes.ids().filter(|c| has(*c, "forward") && !has(*c, "backward") && !named(*c));
    let (Some(class), None) = (roots.next(), roots.next()) else { return None };
    (MODELS.contains(&name.as_str()) || like(&ir.classes[class].name)).then_some(ClassRef { module, class })
}

/// Whether a parameter is called as a class is: `lm_head` and `ParallelLMHead`.
fn is_called(param: &str, class: &str) -> bool {
    let short = param.to_lowercase().replace('_', "");
    short.len() > 3 && class.to_lowercase().ends_with(&short)
}

/// Whether a function makes an object of a class and keeps it under a name that is as asked.
fn makes(view: &View<'_>, class: ClassRef, wanted: &dyn Fn(&str) -> bool) -> bool {
    (0..view.steps.len()).any(|step| match view.steps[step].stmt {
        Stmt::Assign { dst, value: value @ Rvalue::Call { .. } } => {
            let made = view.callee(value).is_some_and(|path| view.project.path(&path) == Resolved::Class(class));
            made && is_kept(view, *dst, wanted, MOST_CALLS)
        }
        _ => false,
    })
}

/// Whether a value gets a name that is as asked, also behind calls of its methods: `criterion = InfoNce(t).to(device)`.
fn is_kept(view: &View<'_>, local: LocalId, wanted: &dyn Fn(&str) -> bool, depth: usize) -> bool {
    let (true, Some(depth)) = (view.is_temp(local), depth.checked_sub(1)) else {
        return wanted(view.local_name(local));
    };
    view.readers(local).iter().any(|at| match view.steps[*at].stmt {
        Stmt::SetAttr { name, .. } => wanted(name),
        Stmt::Assign { dst, .. } => is_kept(view, *dst, wanted, depth),
        _ => false,
    })
}

impl Machine<'_> {
    /// The module of the file that a parameter of a free function stands for, if the function calls it.
    pub(super) fn sole_object_class(&self, param: &Param) -> Option<ClassRef> {
        let at = self.stack.last()?.func;
        let func = self.project.func(at);
        if func.class.is_some() || func.code.count() == 0 {
            return None;
        }
        let class = sole_module(self.project, self.files, at.module, param)?;
        // Where another parameter has its name, this one is another module.
        let called = |p: &Param| is_called(&p.name, &self.project.class(class).name);
        if !called(param) && func.params.iter().any(called) {
            return None;
        }
        let view = View::new(self.project, self.rules, self.files, at);
        let calls = |step| matches!(view.value(step), Some(Rvalue::Call { callee: Operand::Local(l), .. }) if *l == param.local);
        let rebound = !view.defs(param.local).is_empty();
        let given = (0..view.steps.len()).any(calls) && !rebound;
        (given && !self.is_made_beside(&view, param, class)).then_some(class)
    }

    /// Whether a class is that of something else than a parameter: of a loss, of what the function makes under another name, or of what the file
    /// keeps under the name of a loss.
    fn is_made_beside(&self, view: &View<'_>, param: &Param, class: ClassRef) -> bool {
        let name = &self.project.class(class).name;
        let is_loss = |name: &str| {
            let short = name.to_lowercase();
            LOSSES.iter().any(|word| short.ends_with(word))
        };
        if is_loss(name) && !is_loss(&param.name) || makes(view, class, &|made| made != param.name) {
            return true;
        }
        let text = self.files[self.project.file(class.module)].whole().to_lowercase();
        let funcs = self.project.modules[class.module].ir.funcs.ids();
        LOSSES.iter().any(|word| text.contains(word)) && !is_loss(&param.name) && {
            let of = |func| View::new(self.project, self.rules, self.files, FuncRef { module: class.module, func });
            funcs.into_iter().any(|func| makes(&of(func), class, &is_loss))
        }
    }

    /// Parameters of a root that are data beside a module which only their file shows: what is read as a tensor, and not given to it.
    pub(super) fn data_beside(&self, root: FuncRef, given: &[Value]) -> Vec<Name> {
        let func = self.project.func(root);
        let modules: Vec<LocalId> = func
            .params
            .iter()
            .zip(given)
            .filter(|(p, v)| p.hint.is_none() && matches!(v, Value::Object(_)))
            .map(|(p, _)| p.local)
            .collect();
        if modules.is_empty() || func.class.is_some() {
            return Vec::new();
        }
        let view = View::new(self.project, self.rules, self.files, root);
        let is_data = |p: &&Param| {
            let part = p.name.split('_').any(|w| PARTS.contains(&w));
            let rebound = !view.defs(p.local).is_empty();
            !modules.contains(&p.local) && !part && !rebound && self.reads_data(&view, p.local, &modules)
        };
        func.params.iter().filter(|p| p.kind == ParamKind::Normal).filter(is_data).map(|p| p.name.clone()).collect()
    }

    /// Whether a function reads a parameter as a tensor wherever it reads it, and gives it to no module.
    fn reads_data(&self, view: &View<'_>, local: LocalId, modules: &[LocalId]) -> bool {
        let is = |o: &Operand| matches!(o, Operand::Local(l) if *l == local);
        view.readers(local).iter().all(|step| match view.value(*step) {
            Some(Rvalue::Binary { .. } | Rvalue::Compare { .. } | Rvalue::Unary { .. }) => true,
            Some(Rvalue::Item { base, .. }) => is(base),
            Some(Rvalue::Call { callee, .. }) => {
                !is(callee) && !matches!(callee, Operand::Local(l) if modules.contains(l))
            }
            Some(Rvalue::CallMethod { base, name, .. }) => {
                let module = matches!(view.expr(base), Expr::Local(l) if modules.contains(&l));
                !module && (!is(base) || self.rules.tensor_method(name).is_some())
            }
            _ => false,
        })
    }

    /// The type of data on the axis on which all ranks have the same.
    pub(super) fn note_data(&self, path: &Name, t: &mut crate::types::TensorType) {
        if self.data.contains(path) {
            t.grad = Tri::No;
            t.local.set(&Axis::new(SAME_DATA), AxisState::new(AxisType::EQUAL));
        }
    }

    /// What a loss function returns: a loss that every rank counts in full has gradients that are as many times too large.
    pub(super) fn returned_loss(&mut self, root: FuncRef, value: &Value) {
        let func = self.project.func(root);
        if !func.name.to_lowercase().contains("loss") || !self.w.modes.grad || self.w.modes.typecheck.is_some() {
            return;
        }
        let loss = match value {
            Value::Tuple(items) => items.first().cloned(),
            one => Some(one.clone()),
        };
        let Some(t) = loss.as_ref().and_then(|l| self.tensor(l)) else { return };
        let axis = Axis::new(SAME_DATA);
        let state = t.local.get(&axis).clone();
        let scalar = t.shape.as_ref().is_none_or(|s| s.rank() == 0);
        if state.set.known() != Some(Spmd::Replicate) || t.grad == Tri::No || !scalar {
            return;
        }
        let view = View::new(self.project, self.rules, self.files, root);
        let mut returns = view.steps.iter().filter(|s| matches!(s.stmt, Stmt::Return { .. }));
        let (Some(step), None) = (returns.next(), returns.next()) else { return };
        let (place, part) = (view.place(step.id), view.part(step.id, 0));
        let operand = OperandAt { place: Some(part), state, is_number: false, is_divisor: false };
        self.report(place, FindingKind::BackwardLoss { axis, operand, returned: true });
    }
}
