//! Objects of classes of the project that a function is given: by its annotation, or by what it reads of them. In: a parameter. Out: an
//! object as its constructor leaves it, with the groups and meshes that it makes. Never: modules, classes that say nothing of groups, or a
//! parameter that two classes would fit. Next: `assumed.rs`.

use super::super::practice::near;
use super::super::shared::Shared;
use super::slots::Slots;
use super::value::{Object, State, Val};
use super::{MOST_STEPS_OF_OBJECT, Run};
use crate::ir::{Operand, Param, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef, Resolved};
use crate::source::{Idx, Name};

/// Methods that classes outside the project have as well.
const COMMON: &[&str] = &[
    "zero_grad",
    "state_dict",
    "load_state_dict",
    "parameters",
    "named_parameters",
    "clip_grad_norm_",
    "clip_grad_norm",
    "train_step",
    "training_step",
    "set_epoch",
    "get_group",
    "add_scalar",
    "compute_loss",
    "loss_fn",
    "param_groups",
];

/// Words of constructors that say which ranks there are.
const GROUPS: &[&str] = &["mesh", "_group", "world_size"];

/// A point of an execution.
pub struct Mark {
    steps: usize,
    out: usize,
    noted: usize,
}

impl<'a> Run<'a> {
    /// The object that a parameter is, where one class of the project fits.
    pub fn object_given(&mut self, at: FuncRef, param: &Param, state: &mut State) -> Option<Val> {
        if state.frames.len() > 2 {
            return None;
        }
        let class = match &param.hint {
            Some(hint) => self.class_hinted(at, hint),
            None => self.class_read(at, param),
        };
        let class = class?;
        if self.is_criterion(class) {
            let module = state.module(&param.name);
            state.modules[module].class = Some(class);
            return Some(Val::Module(module));
        }
        self.says_groups(class).then(|| self.made_object(class, state))?
    }

    /// Whether a class is a module that computes losses, by its name and by what its forward communicates.
    fn is_criterion(&self, class: ClassRef) -> bool {
        let name = &self.project.class(class).name;
        let text = self.files[self.project.file(class.module)].slice(self.project.class(class).span);
        ["Criterion", "Loss"].iter().any(|end| name.ends_with(end))
            && text.contains("all_reduce")
            && self.is_module_class(class)
    }

    /// How far this execution has come.
    pub fn mark(&self) -> Mark {
        Mark { steps: self.steps, out: self.out.len(), noted: self.noted.len() }
    }

    /// What was executed since then counts for nothing.
    pub fn back_to(&mut self, mark: &Mark) {
        self.steps = mark.steps;
        self.out.truncate(mark.out);
        self.noted.truncate(mark.noted);
    }

    /// An object as its constructor leaves it, where there is one way through that.
    fn made_object(&mut self, class: ClassRef, state: &mut State) -> Option<Val> {
        if self.unmade.contains(&class) {
            return None;
        }
        let init = self.method(class, "__init__")?;
        state.objects.push(Shared::new(Object { class: Some(class), attrs: Slots::default() }));
        let object = Val::Object(state.objects.len() - 1);
        let mut args = Slots::default();
        for (i, param) in self.project.func(init).params.iter().enumerate() {
            let value = if i == 0 { object.clone() } else { Val::Named(param.name.clone()) };
            args.insert(param.local.index(), value);
        }
        let before = self.mark();
        self.steps = self.steps.max(self.most_steps.saturating_sub(MOST_STEPS_OF_OBJECT));
        let mut made = self.run(init, args, None, state.clone());
        let ended = self.steps <= self.most_steps;
        self.back_to(&before);
        // Another way through the constructor may leave other groups.
        let (Some((after, _)), None, true) = (made.pop(), made.pop(), ended) else {
            self.unmade.insert(class);
            state.objects.pop();
            return None;
        };
        *state = State { facts: state.facts.clone(), terms: state.terms.clone(), ..after };
        Some(object)
    }

    /// A method of something that is known by a name alone, where one class of the project has a method of this name: with the object.
    pub fn sole_method(&mut self, name: &Name, state: &mut State) -> Option<(usize, FuncRef)> {
        let plain = name.len() > 6 && name.contains('_') && !name.starts_with('_');
        if !plain || COMMON.contains(&name.as_str()) || self.rules.tensor_method(name).is_some() {
            return None;
        }
        let [(class, func)] = self.project.methods_named(name) else { return None };
        let (class, at) = (*class, FuncRef { module: class.module, func: *func });
        let own = self.project.func(at).params.first().is_some_and(|p| p.name == "self");
        if !own || class.module != self.root.module || !self.matters(at) {
            return None;
        }
        if let Some(object) = state.objects.iter().position(|o| o.class == Some(class)) {
            return Some((object, at));
        }
        match self.made_object(class, state)? {
            Val::Object(object) => Some((object, at)),
            _ => None,
        }
    }

    fn class_hinted(&self, at: FuncRef, hint: &Name) -> Option<ClassRef> {
        match self.project.member(at.module, &Name::from(hint.trim_matches(['"', '\'']))) {
            Some(Resolved::Class(class)) => Some(class),
            _ => None,
        }
    }

    /// The one class of the file that is called like a parameter and has all that the function reads of it.
    fn class_read(&mut self, at: FuncRef, param: &Param) -> Option<ClassRef> {
        let classes = &self.project.modules[at.module].ir.classes;
        let called = |name: &str| param.name.len() > 3 && snake(name).ends_with(param.name.as_str());
        let mut fit = classes.iter_enumerated().filter(|(_, c)| called(&c.name));
        let (Some((class, _)), None) = (fit.next(), fit.next()) else { return None };
        let class = ClassRef { module: at.module, class };
        let view = self.view(at);
        let read = |i: usize| match view.value(i) {
            Some(Rvalue::Attr { base, name } | Rvalue::CallMethod { base, name, .. })
                if near::local(base) == Some(param.local) =>
            {
                Some(name.clone())
            }
            _ => None,
        };
        let read: Vec<Name> = (0..view.steps.len()).filter_map(read).collect();
        let has = |name: &Name| {
            let methods = &self.project.class(class).methods;
            methods.iter().any(|(n, _)| n == name) || self.sets(class, name)
        };
        read.iter().all(has).then_some(class)
    }

    /// Whether a method of a class sets an attribute.
    fn sets(&self, class: ClassRef, wanted: &str) -> bool {
        let methods = self.project.class(class).methods.iter();
        methods.clone().any(|(_, func)| {
            let func = self.project.func(FuncRef { module: class.module, func: *func });
            let own = func.params.first().map(|p| p.local);
            sets(func.body(), &|base, name| name == wanted && near::local(base) == own)
        })
    }

    fn says_groups(&self, class: ClassRef) -> bool {
        let text = self.files[self.project.file(class.module)].slice(self.project.class(class).span);
        !self.is_module_class(class) && GROUPS.iter().any(|w| text.contains(w))
    }
}

fn sets(block: &crate::ir::Block, is: &dyn Fn(&Operand, &str) -> bool) -> bool {
    block.iter().any(|node| match &node.stmt {
        Stmt::SetAttr { base, name, .. } => is(base, name),
        Stmt::If { then, orelse, .. } => sets(then, is) || sets(orelse, is),
        Stmt::With { body, .. } | Stmt::For { body, .. } => sets(body, is),
        _ => false,
    })
}

/// `ParallelState` as `parallel_state`.
fn snake(name: &str) -> String {
    let mut out = String::new();
    for (i, c) in name.char_indices() {
        if c.is_uppercase() && i > 0 {
            out.push('_');
        }
        out.extend(c.to_lowercase());
    }
    out
}
