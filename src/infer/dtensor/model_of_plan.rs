//! The module that a plan is for, where the code that applies it does not show which one that is: a parameter without an annotation, an element
//! of what such a one holds, the result of a function that is not followed. In: a call that applies a plan, and its entries. Out: an object of
//! the one class of the project that has all modules which the plan names. Never: a class among several that lie equally near, or one that
//! lacks a module of the plan; a plan of a single entry. Next: `planned.rs`.

use super::Call;
use crate::infer::expr::CallArgs;
use crate::infer::heap::{Cell, ListCell, ObjectClass};
use crate::infer::machine::{Eval, Machine};
use crate::infer::practice::near;
use crate::infer::value::{ObjId, Value};
use crate::ir::{Block, Const, FuncKind, Item, Operand, Stmt};
use crate::project::{ClassRef, FuncRef, ModuleId, Resolved};
use crate::rules::Entry;
use crate::source::Name;

/// An object that stands for a module of which only its class is known: the class, and under which name the code has the module.
#[derive(Clone, Debug)]
pub struct StandIn {
    class: ClassRef,
    path: Option<Name>,
    object: ObjId,
}

/// What changes modules, or how they compute, without a plan.
const BY_HAND: &[&str] = &["setattr(", "distribute_module", "distribute_tensor", "register_forward", "register_module"];

/// The same by functions of modules that the code makes itself.
const OF_KNOWN: &[&str] = &[
    "setattr(",
    "distribute_module(",
    "distribute_tensor(",
    "register_forward",
    "register_module(",
    ".apply(",
    "named_children(",
    "named_modules(",
    ".weight = ",
    ".weight.data = ",
];

/// Calls that make a model of what another library has under a name.
const OF_LIBRARIES: &[&str] = &["from_pretrained(", "create_model(", "from_config("];

/// Words of functions that look at a module, or wrap it, and leave its layers as they are.
const LOOKS: &[&str] = &[
    "print",
    "log",
    "count",
    "num",
    "summar",
    "compile",
    "fsdp",
    "fully_shard",
    "checkpoint",
    "ac",
    "init",
    "save",
    "load",
    "replicate",
    "ddp",
    "optim",
    "profil",
    "check",
    "assert",
    "len",
    "type",
    "trainer",
];

/// Depth of modules in modules to which a style is looked for.
const MAX_STYLE_DEPTH: usize = 8;

impl Machine<'_> {
    /// The module that a plan is for: an object, one of the class that the annotation of a parameter names, or one of the only class that has
    /// the modules of the plan; and whether it is that object.
    pub(super) fn module_given(&mut self, call: &Call<'_>, entries: &[(Name, Value)]) -> Option<(ObjId, bool)> {
        let given = call.value("module")?.clone();
        let path = match &given {
            Value::Object(module) => {
                let class = self.w.heap.object(*module).filter(|o| o.attrs.is_empty()).map(|o| o.class.clone());
                // Its constructor was not followed.
                return match class {
                    Some(ObjectClass::Project(class)) => {
                        let path = Name::from(format!("#{}", module.0));
                        Some(self.stand_in(call, class, Some(path), entries).map_or((*module, true), |at| (at, false)))
                    }
                    _ => Some((*module, true)),
                };
            }
            Value::Sym(path) => Some(path.clone()),
            Value::Unknown => None,
            _ => return None,
        };
        let hinted = path.as_ref().and_then(|path| self.class_of_parameter(path));
        if let Some(class) = hinted {
            return self.stand_in(call, class, path, &[]).map(|at| (at, false));
        }
        let before = self.stand_ins.iter().find(|s| s.path == path).map(|s| s.object);
        if let Some(before) = before.filter(|at| self.w.heap.object(*at).is_some() && self.has_modules(*at, entries)) {
            return Some((before, false));
        }
        let class = self.class_of_plan(entries).filter(|_| !self.is_of_library(path.as_ref()))?;
        self.stand_in(call, class, path, entries).map(|at| (at, false))
    }

    /// The class that the annotation of a parameter names. Of the second kind there may be others, of classes derived from that.
    fn class_of_parameter(&self, path: &Name) -> Option<ClassRef> {
        let at = self.stack.last()?.func;
        let param = self.project.func(at).params.iter().find(|p| p.name == *path)?;
        let hint = param.hint.as_deref()?.trim_matches(['"', '\'']);
        match self.project.member(at.module, hint)? {
            Resolved::Class(class) => Some(class),
            _ => None,
        }
    }

    /// An object of a class, with all modules of a plan; the same one for all plans of one module.
    fn stand_in(
        &mut self,
        call: &Call<'_>,
        class: ClassRef,
        path: Option<Name>,
        entries: &[(Name, Value)],
    ) -> Option<ObjId> {
        let known = self.stand_ins.iter().find(|s| s.class == class && s.path == path).map(|s| s.object);
        if let Some(known) = known.filter(|at| self.w.heap.object(*at).is_some()) {
            return self.has_modules(known, entries).then_some(known);
        }
        let before = self.w.clone();
        let quiet = std::mem::replace(&mut self.quiet, true);
        let modelling = std::mem::replace(&mut self.modelling, true);
        let made = self.construct(call.id, class, &CallArgs { args: Vec::new(), open: true });
        (self.quiet, self.modelling) = (quiet, modelling);
        let worlds = match made {
            Eval::One(value) => vec![(std::mem::take(&mut self.w), value)],
            Eval::Many(outcomes) => outcomes,
        };
        for (world, value) in worlds {
            let Value::Object(object) = value else { continue };
            self.w = world;
            // One of the worlds with all modules is as good as another.
            if self.has_modules(object, entries) {
                self.stand_ins.push(StandIn { class, path, object });
                return Some(object);
            }
        }
        self.w = before;
        None
    }

    /// Notes whether modules may get other styles, or be replaced, beside the plans that are followed.
    pub(super) fn note_open_plans(&mut self, call: &Call<'_>, followed: bool) {
        let known = matches!(call.value("module"), Some(Value::Object(_)));
        let text = || self.files[self.file()].slice(self.func().span);
        self.open_plans |= !followed || !known && (sets_others(self.func().body()) || near::has_any(text(), BY_HAND));
        let by_hand = || {
            let above = |at: FuncRef| self.files[self.project.file(at.module)].slice(self.project.func(at).span);
            self.stack.iter().any(|active| near::has_any(above(active.func), OF_KNOWN))
                || self.files[self.file()].whole().contains("setattr(")
        };
        self.open_modules |= !followed || by_hand();
    }

    /// Notes that a function which is not followed was given a module, and may have split its layers.
    pub(in crate::infer) fn note_handed_modules(&mut self, path: &Name, args: &CallArgs) {
        if self.open_modules || self.planning.is_some() || path.starts_with("torch.") {
            return;
        }
        let name = path.rsplit('.').next().unwrap_or(path).to_lowercase();
        let looks = name.split('_').any(|part| LOOKS.iter().any(|w| part.starts_with(w)));
        let is_module = |value: &Value| match value {
            Value::Object(id) => match self.w.heap.object(*id).map(|o| &o.class) {
                Some(ObjectClass::External(class)) => matches!(self.rules.get(class), Some(Entry::Module(_))),
                Some(ObjectClass::Project(class)) => {
                    self.project.class(*class).methods.iter().any(|(name, _)| name == "forward")
                }
                None => false,
            },
            _ => false,
        };
        self.open_modules = !looks && args.args.iter().any(|a| is_module(&a.value));
    }

    /// Whether the module of a plan is one of another library: the annotation of the parameter names it, or the function makes it by a name.
    fn is_of_library(&self, path: Option<&Name>) -> bool {
        let text = self.files[self.file()].slice(self.func().span);
        if near::has_any(text, OF_LIBRARIES) {
            return true;
        }
        let Some(at) = self.stack.last().map(|active| active.func) else { return false };
        let foreign = |hint: &str| match self.project.member(at.module, hint) {
            Some(Resolved::External(path)) => {
                !path.starts_with("torch") && near::has_any(hint, &["Model", "For", "Transformer"])
            }
            _ => false,
        };
        let params = &self.project.func(at).params;
        let own = params.iter().filter(|p| path.is_none_or(|path| p.name == *path));
        own.filter_map(|p| p.hint.as_deref()).any(|hint| foreign(hint.trim_matches(['"', '\''])))
    }

    /// Whether an object stands for a module that may have styles, or other modules, which are not followed. What stands for another module
    /// may be one of its layers, with the styles of that.
    pub(super) fn may_be_open(&self, module: ObjId) -> bool {
        self.open_modules
            || (self.open_plans || self.stand_ins.len() > 1) && self.stand_ins.iter().any(|s| s.object == module)
    }

    fn has_modules(&self, object: ObjId, entries: &[(Name, Value)]) -> bool {
        entries.iter().all(|(key, _)| !self.modules_at(object, key).is_empty())
    }

    /// The nearest class of the project whose constructor sets the attributes with which the keys of a plan begin, if that is one.
    fn class_of_plan(&self, entries: &[(Name, Value)]) -> Option<ClassRef> {
        let mut firsts: Vec<&str> = entries.iter().filter_map(|(key, _)| key.split('.').next()).collect();
        firsts.sort_unstable();
        firsts.dedup();
        let word = |first: &&str| first.chars().all(|c| c.is_alphanumeric() || c == '_');
        let named = |first: &&str| !first.is_empty() && word(first) && !first.starts_with(|c: char| c.is_ascii_digit());
        let styled = entries.iter().filter(|(_, style)| self.style_of(style).is_some()).count();
        if styled < 2 || !firsts.iter().all(named) {
            return None;
        }
        let home = self.stack.last()?.func.module;
        let (mut found, mut nearest) = (Vec::new(), 0);
        let files: Vec<_> = self.files.saying(&format!("self.{}", firsts.first()?)).collect();
        for module in self.project.modules.ids().filter(|m| files.contains(&self.project.file(*m))) {
            let near = self.nearness(home, module);
            for class in self.project.modules[module].ir.classes.ids().map(|class| ClassRef { module, class }) {
                if near < nearest && !found.is_empty() || !self.sets_all(class, &firsts) {
                    continue;
                }
                if near > nearest {
                    found.clear();
                }
                nearest = near;
                found.push(class);
            }
        }
        match found.as_slice() {
            [one] => Some(*one),
            _ => None,
        }
    }

    /// How near a module is to another one: the same, or by the folders that both have above them.
    fn nearness(&self, home: ModuleId, other: ModuleId) -> usize {
        if home == other {
            return usize::MAX;
        }
        let path = |module: ModuleId| self.files[self.project.file(module)].path.split('/');
        1 + path(home).zip(path(other)).take_while(|(a, b)| a == b).count()
    }

    /// Whether the constructor of a module sets all of these attributes.
    fn sets_all(&self, class: ClassRef, names: &[&str]) -> bool {
        let definition = self.project.class(class);
        let method = |name: &str| definition.methods.iter().find(|(n, _)| n == name).map(|(_, func)| *func);
        let (Some(init), Some(_)) = (method("__init__"), method("forward")) else { return false };
        let func = &self.project.modules[class.module].ir.funcs[init];
        let text = self.files[self.project.file(class.module)].slice(func.span);
        func.kind == FuncKind::Function && names.iter().all(|name| sets(text, name))
    }

    /// Whether the receiver of a method is a module to which a plan was applied, or has one inside: what it computes is worth following.
    pub(in crate::infer) fn is_planned(&self, args: &CallArgs) -> bool {
        !self.plans.is_empty() && args.args.first().is_some_and(|a| self.has_style(&a.value, MAX_STYLE_DEPTH))
    }

    fn has_style(&self, value: &Value, depth: usize) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        match value {
            Value::Object(id) => self.w.heap.object(*id).is_some_and(|object| {
                object.get(super::planned::STYLE).is_some()
                    || object.attrs.iter().any(|(_, inner)| self.has_style(inner, depth))
            }),
            Value::List(_) => self.elements(value).iter().any(|item| self.has_style(item, depth)),
            _ => false,
        }
    }

    /// What is known of the elements of a list: those that are told apart, and what the others are.
    pub(super) fn elements(&self, value: &Value) -> Vec<Value> {
        match value {
            Value::List(list) => match self.w.heap.get(*list) {
                Some(Cell::List(ListCell { items, rest })) => items.iter().chain(rest).cloned().collect(),
                _ => Vec::new(),
            },
            _ => Vec::new(),
        }
    }

    /// An f-string. Only a path of modules in a function that makes styles is followed: `f"layers.{i}.w1"`, as the pattern that stands for
    /// all of them where the number is not known.
    pub(in crate::infer) fn path_text(&mut self, items: &[Item]) -> Value {
        let path = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let fits = |item: &Item| match item {
            Item::One(Operand::Const(Const::Str(text))) => text.chars().all(path),
            Item::One(_) => true,
            Item::Star(_) => false,
        };
        if !items.iter().all(fits) || !self.makes_styles() {
            return Value::Unknown;
        }
        let mut text = String::new();
        for item in items {
            let Item::One(operand) = item else { continue };
            match self.operand(operand) {
                Value::Const(Const::Str(part)) => text.push_str(&part),
                Value::Const(Const::Int(number)) => text.push_str(&number.to_string()),
                _ => text.push('*'),
            }
        }
        let part = |p: &str| p == "*" || !p.is_empty() && !p.contains('*');
        let follows = text.contains('.') && !text.starts_with('*') && text.split('.').all(part);
        if follows { Value::str(Name::from(text)) } else { Value::Unknown }
    }

    /// Whether the function under execution mentions a style for layers with a weight.
    fn makes_styles(&self) -> bool {
        let Some(active) = self.stack.last() else { return false };
        let text = self.files[self.project.file(active.func.module)].slice(self.func().span);
        let mut styles = self
            .rules
            .entries()
            .filter(|(_, entry)| matches!(entry, Entry::Intrinsic(rule) if rule.does == "dtensor-style-weight"));
        styles.any(|(name, _)| text.contains(name.rsplit('.').next().unwrap_or(name)))
    }
}

/// Whether a function sets attributes of what it is given: `model.head = ParallelHead(..)`.
fn sets_others(block: &Block) -> bool {
    block.iter().any(|node| match &node.stmt {
        Stmt::SetAttr { .. } => true,
        other => other.blocks().any(sets_others),
    })
}

/// Whether a text sets an attribute of its object: `self.w1 = `, `self.w1: nn.Module = `.
fn sets(text: &str, name: &str) -> bool {
    let attribute = format!("self.{name}");
    text.match_indices(&attribute).any(|(at, _)| {
        let rest = text[at + attribute.len()..].trim_start_matches(' ');
        rest.starts_with('=') && !rest.starts_with("==") || rest.starts_with(':')
    })
}
