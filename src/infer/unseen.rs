//! Modules of the project whose construction is not seen: parameters that an annotation gives a class. In: a parameter of a root. Out: an
//! object as the constructor of the class leaves it, given unknown arguments. Never: a class that another one of the project derives
//! from, or that leaves methods open; more than a few steps; findings. Next: `root.rs`.

use super::budget::Budget;
use super::expr::{CallArg, CallArgs};
use super::limits::{MAX_UNSEEN, MAX_VALUE_DEPTH, UNSEEN_STEPS};
use super::machine::{Eval, Machine};
use super::value::Value;
use super::world::World;
use crate::ir::{Param, ParamKind, StmtId};
use crate::project::{ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::source::{Idx, Name};

impl Machine<'_> {
    /// The object that a parameter is by its annotation.
    pub(super) fn unseen_object(&mut self, param: &Param) -> Option<Value> {
        let module = self.stack.last()?.func.module;
        self.unseen_of(module, param, &param.name, MAX_UNSEEN).or_else(|| self.sole_object(param))
    }

    /// The object that a parameter without an annotation is, in a file with one model.
    fn sole_object(&mut self, param: &Param) -> Option<Value> {
        let class = self.sole_object_class(param)?;
        self.may_stand_for(class).then(|| self.made_unseen(class, &param.name, MAX_UNSEEN)).flatten()
    }

    fn unseen_of(&mut self, module: ModuleId, param: &Param, path: &Name, depth: usize) -> Option<Value> {
        let depth = depth.checked_sub(1)?;
        if param.has_default || self.func().code.count() == 0 {
            return None;
        }
        let class = hinted_class(self.project, module, param.hint.as_deref()?)?;
        self.may_stand_for(class).then(|| self.made_unseen(class, path, depth)).flatten()
    }

    /// Whether any instance is one of the class itself, and all that is called is there.
    fn may_stand_for(&self, class: ClassRef) -> bool {
        let statics = &self.settings.statics;
        let mut bases = statics.external_bases(class).peekable();
        let relevant = self.settings.relevance.has_class(class);
        if !relevant
            || bases.peek().is_none()
            || !bases.all(|b| b.ends_with(".Module") || b.starts_with("torch.nn."))
            || statics.is_base(class)
        {
            return false;
        }
        self.settings.linearized(self.project, class).iter().all(|base| {
            let methods = &self.project.class(*base).methods;
            let open = |at: FuncRef| self.project.func(at).ends_in_raise;
            !methods.iter().any(|(_, func)| open(FuncRef { module: base.module, func: *func }))
        })
    }

    /// An object after its constructor with arguments of which nothing is known; several ends of that are joined.
    fn made_unseen(&mut self, class: ClassRef, path: &Name, depth: usize) -> Option<Value> {
        let before = self.w.clone();
        let args = self.unseen_arguments(class, path, depth);
        let out = std::mem::take(&mut self.out);
        let budget = std::mem::replace(&mut self.budget, Budget::of_steps(UNSEEN_STEPS));
        let quiet = std::mem::replace(&mut self.quiet, true);
        let made = self.construct(StmtId::from_index(0), class, &args);
        self.quiet = quiet;
        self.budget = budget;
        self.out = out;
        let made = match made {
            Eval::One(value) => Some(value),
            Eval::Many(outcomes) => self.joined(outcomes),
        };
        match made {
            Some(object @ Value::Object(_)) => Some(object),
            _ => {
                self.w = before;
                None
            }
        }
    }

    /// Several ends as one: a world and a value that cover them all.
    pub(super) fn joined(&mut self, outcomes: Vec<(World, Value)>) -> Option<Value> {
        let mut outcomes = outcomes.into_iter();
        let (mut world, mut value) = outcomes.next()?;
        for (other, end) in outcomes {
            let mut joiner = super::join::Joiner::new(&mut self.next_id, None);
            world = joiner.worlds(world, &other);
            value = joiner.values(&mut world.heap, &value, &end, MAX_VALUE_DEPTH);
        }
        self.w = world;
        Some(value)
    }

    /// What a constructor is given: symbols named after the object, the configuration of the program, other modules by their annotations.
    fn unseen_arguments(&mut self, class: ClassRef, path: &Name, depth: usize) -> CallArgs {
        let mut args = CallArgs { args: Vec::new(), open: false };
        let order = self.settings.linearized(self.project, class);
        let init = order.iter().find_map(|base| {
            let methods = &self.project.class(*base).methods;
            let (_, func) = methods.iter().find(|(name, _)| name == "__init__")?;
            Some(FuncRef { module: base.module, func: *func })
        });
        let Some(init) = init else { return args };
        for param in self.project.func(init).params.iter().skip(1) {
            let keyword = match param.kind {
                ParamKind::VarArgs | ParamKind::KwArgs => continue,
                ParamKind::PositionalOnly => None,
                _ => Some(param.name.clone()),
            };
            let own = Name::from(format!("{path}.{}", param.name));
            let value = match self.unseen_of(init.module, param, &own, depth) {
                Some(object) => object,
                None if self.settings.is_config(&param.name) => Value::Sym(param.name.clone()),
                None => {
                    let named = Param { name: own, ..param.clone() };
                    self.note_hint(init.module, &named);
                    Value::Sym(named.name)
                }
            };
            args.args.push(CallArg { keyword, value, part: 0 });
        }
        args
    }
}

/// The class of the project that an annotation names, and nothing else.
pub(super) fn hinted_class(project: &Project, module: ModuleId, hint: &str) -> Option<ClassRef> {
    let hint = hint.trim_matches(['"', '\'']);
    let mut parts = hint.split('.');
    let word = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    let mut found = project.member(module, parts.next().filter(word)?)?;
    for part in parts {
        found = match found {
            Resolved::Module(inner) => project.member(inner, Some(part).filter(word)?)?,
            _ => return None,
        };
    }
    match found {
        Resolved::Class(class) => Some(class),
        _ => None,
    }
}
