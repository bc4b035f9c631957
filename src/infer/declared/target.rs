//! Modules to which a sharding is declared: a configuration by its path, the class that it makes, and what that class has. In: the
//! base of an attribute that keeps a declaration. Out: findings, and what `flow.rs` hands on. Never: a guess: what no annotation of a
//! parameter or field tells is left alone. Next: `flow.rs`.

use super::flow::Sharded;
use super::found::Declaration;
use super::layout::DeclaredLayout;
use crate::infer::machine::Machine;
use crate::infer::settings::nearest;
use crate::infer::value::{ObjId, Value};
use crate::ir::annotation::Atom;
use crate::ir::{Arg, ArgKind, Block, Const, Operand, ParamKind, Rvalue, Stmt, StmtId};
use crate::project::{ClassRef, FuncRef, ModuleId, Resolved};
use crate::rules::{Entry, IntrinsicRule};
use crate::source::{Name, Place};
use crate::types::normalize_dim;
use std::sync::Arc;

/// Methods of a module that give it a state by name.
const REGISTERS: [&str; 2] = ["register_parameter", "register_buffer"];

/// Functions that make a tensor of the sizes that are their arguments.
const FACTORIES: [&str; 5] = ["empty", "zeros", "ones", "rand", "randn"];

/// Words of code that gives a module states in ways that are not followed.
const HIDDEN: [&str; 3] = ["setattr(", "__dict__", "_parameters["];

/// The states of a class.
#[derive(Default)]
pub(super) struct States {
    /// All names that the source shows.
    pub names: Vec<Name>,
    /// The number of dims of a parameter, where that is visible.
    pub ranks: Vec<(Name, usize)>,
    /// Parameters that every object has: name and where it is made.
    pub certain: Vec<(Name, Place)>,
    /// Whether there are no others.
    pub complete: bool,
}

/// A module by the configuration that makes it.
pub(super) struct Target {
    pub class: ClassRef,
    /// The module that has it, and under which name.
    pub owner: Option<(ClassRef, Name)>,
}

impl Machine<'_> {
    /// `base.name = value`: a declaration that a module gets.
    pub(in crate::infer) fn keeps_declaration(&mut self, id: StmtId, base: &Value, name: &Name, value: &Value) {
        let Value::Object(object) = value else { return };
        let Some(rule) = self.sharding_rule(*object) else { return };
        if rule.role("attribute") != Some(name) {
            return;
        }
        let target = match base {
            Value::Sym(path) => self.target_of(&rule, path),
            Value::Object(_) => self.target_of_object(&rule, base),
            _ => None,
        };
        let Some(target) = target else { return };
        let place = self.place(id);
        self.check_states(&rule, *object, &target, place);
        self.check_inputs(&rule, *object, &target, place);
        self.hand_on(&rule, *object, &target, place);
    }

    /// The module that an instance of a configuration makes.
    fn target_of_object(&mut self, rule: &IntrinsicRule, base: &Value) -> Option<Target> {
        let Value::Object(id) = base else { return None };
        let crate::infer::heap::ObjectClass::Project(class) = self.w.heap.object(*id)?.class.clone() else {
            return None;
        };
        let qualified = self.project.class(class).qualname.clone();
        let outer = match rule.role("configuration").and_then(|c| qualified.strip_suffix(&format!(".{c}"))) {
            Some(outer) => self.class_named(class.module, outer)?,
            None => class,
        };
        Some(Target { class: outer, owner: None })
    }

    /// The module that a configuration of this path makes: by the annotation of the parameter, then of fields.
    fn target_of(&mut self, rule: &IntrinsicRule, path: &str) -> Option<Target> {
        let plain = path.replace("[...]", "").replace("[0]", "");
        let mut steps = plain.split('.');
        let head = steps.next()?;
        let mut class = self.stack.iter().rev().find_map(|activation| {
            let func = self.project.func(activation.func);
            let hint = func.params.iter().find(|p| p.name == head)?.hint.clone()?;
            self.hinted_class(rule, activation.func.module, &hint)
        })?;
        let mut owner = None;
        for step in steps {
            owner = Some((class, Name::from(step)));
            class = self.field_class(rule, class, step)?;
        }
        Some(Target { class, owner })
    }

    /// The class of which an annotation names the configuration: `"Block.Config"`, `list[Block.Config] | None`.
    fn hinted_class(&self, rule: &IntrinsicRule, module: ModuleId, hint: &str) -> Option<ClassRef> {
        let configuration = rule.role("configuration")?;
        let ends = format!(".{configuration}");
        let mut words = hint.split(|c: char| !c.is_alphanumeric() && c != '_' && c != '.');
        let path = words.find_map(|word| word.strip_suffix(&ends))?;
        let (head, rest) = path.split_once('.').map_or((path, None), |(h, r)| (h, Some(r)));
        match (self.project.member(module, head)?, rest) {
            (Resolved::Class(class), None) => Some(class),
            (Resolved::Class(class), Some(rest)) => {
                let qualified = format!("{}.{rest}", self.project.class(class).qualname);
                self.class_named(class.module, &qualified)
            }
            (Resolved::Module(module), Some(rest)) => self.class_named(module, rest),
            _ => None,
        }
    }

    fn class_named(&self, module: ModuleId, qualified: &str) -> Option<ClassRef> {
        let mut classes = self.project.modules[module].ir.classes.iter_enumerated();
        classes.find(|(_, c)| c.qualname == qualified).map(|(class, _)| ClassRef { module, class })
    }

    /// The class that a field of a module's configuration makes.
    fn field_class(&self, rule: &IntrinsicRule, class: ClassRef, field: &str) -> Option<ClassRef> {
        let configuration = rule.role("configuration")?;
        let statics = &self.settings.statics;
        for base in statics.linearized(class).iter() {
            let qualified = format!("{}.{configuration}", self.project.class(*base).qualname);
            let Some(at) = self.class_named(base.module, &qualified) else { continue };
            let span = self.project.class(at).span;
            let text = self.files[self.project.file(at.module)].slice(span);
            if let Some(hint) = text.lines().find_map(|line| annotated(line, field)) {
                return self.hinted_class(rule, at.module, hint);
            }
        }
        None
    }

    /// States of which the declaration says nothing, and names that are no states.
    fn check_states(&mut self, rule: &IntrinsicRule, object: ObjId, target: &Target, place: Place) {
        let declared = match self.layouts_of(rule, object, "states") {
            Some(declared) => declared,
            None if self.is_without(rule, object, "states") => Vec::new(),
            None => return,
        };
        let states = self.states_of(target.class);
        let class = self.project.class(target.class).name.clone();
        let missing = states.certain.iter().find(|(name, _)| !declared.iter().any(|(n, _)| n == name));
        if let Some((name, made)) = missing {
            let kind = Declaration::Undeclared { class, name: name.clone(), made: *made };
            return self.declaration(place, kind);
        }
        for (name, layout) in declared.iter().filter_map(|(n, l)| Some((n, l.as_ref()?))) {
            let mut ranks = states.ranks.iter().filter(|(n, _)| n == name).map(|(_, rank)| *rank);
            let Some(rank) = ranks.next().filter(|rank| ranks.all(|r| r == *rank)) else { continue };
            let beyond = layout.types().into_iter().find_map(|(axis, atom)| match atom {
                Some(Atom::Shard(dim)) if normalize_dim(i64::from(dim), rank).is_none() => Some((axis, dim)),
                _ => None,
            });
            if let Some((axis, dim)) = beyond {
                let kind = Declaration::Dim { name: name.clone(), axis, dim, rank, layout: layout.made };
                return self.declaration(place, kind);
            }
        }
        if !states.complete || states.names.is_empty() {
            return;
        }
        let unknown = declared.iter().find(|(name, _)| !states.names.contains(name));
        if let Some((name, _)) = unknown
            && let Some(near) = nearest(name, states.names.iter())
        {
            let kind = Declaration::NoState { class, name: name.clone(), near: Some(near) };
            self.declaration(place, kind);
        }
    }

    /// Names that the forward of the module does not take.
    fn check_inputs(&mut self, rule: &IntrinsicRule, object: ObjId, target: &Target, place: Place) {
        let Some(forward) = self.declared_forward(target.class) else { return };
        let func = self.project.func(forward);
        if func.params.iter().any(|p| matches!(p.kind, ParamKind::VarArgs | ParamKind::KwArgs)) {
            return;
        }
        let names: Vec<Name> = func.params.iter().skip(1).map(|p| p.name.clone()).collect();
        let positional: Vec<Name> = func
            .params
            .iter()
            .skip(1)
            .filter(|p| matches!(p.kind, ParamKind::Normal | ParamKind::PositionalOnly))
            .map(|p| p.name.clone())
            .collect();
        let class = self.project.class(target.class).name.clone();
        let from = self.layouts_of(rule, object, "input-from");
        let to = self.layouts_of(rule, object, "input-to");
        let unknown = from.iter().chain(&to).flatten().map(|(n, _)| n).find(|n| !names.contains(n));
        // Names that are none of the module's at all are left over from another one, and nothing comes of them.
        if let Some(name) = unknown {
            if let Some(near) = nearest(name, names.iter()) {
                let kind = Declaration::NoInput { class, name: name.clone(), near: Some(near) };
                self.declaration(place, kind);
            }
            return;
        }
        let local = matches!(self.declared_part(rule, object, "local"), Some(Value::Object(_)));
        let described = if self.is_without(rule, object, "input-to") { from } else { to };
        if let (true, Some(described)) = (local, described)
            && let Some(name) = positional.iter().find(|n| !described.iter().any(|(d, _)| d == *n))
        {
            self.declaration(place, Declaration::UndeclaredInput { class: Some(class), name: name.clone() });
        }
    }

    /// The `forward` of a class of the project.
    pub(super) fn declared_forward(&self, class: ClassRef) -> Option<FuncRef> {
        self.settings.statics.linearized(class).iter().find_map(|c| {
            let methods = &self.project.class(*c).methods;
            let (_, func) = methods.iter().find(|(name, _)| name == "forward")?;
            Some(FuncRef { module: c.module, func: *func })
        })
    }

    /// Parameters and buffers that a class shows.
    pub(super) fn states_of(&self, class: ClassRef) -> States {
        let statics = &self.settings.statics;
        let mut out = States { complete: true, ..States::default() };
        for base in statics.external_bases(class) {
            match self.rules.get(base) {
                Some(Entry::Module(rule)) => {
                    let place =
                        Place { file: self.project.file(class.module), span: self.project.class(class).name_span };
                    let always = |name: &&Name| !rule.params_when.iter().any(|(n, _)| n == *name);
                    // One size may stand for all of them.
                    let ranks = rule.params.iter().filter(|(_, sizes)| sizes.len() > 1);
                    out.ranks.extend(ranks.map(|(name, sizes)| (name.clone(), sizes.len())));
                    out.certain.extend(rule.params.iter().map(|(n, _)| n).filter(always).map(|n| (n.clone(), place)));
                    out.names.extend(rule.params.iter().map(|(name, _)| name.clone()));
                }
                _ => out.complete &= base.ends_with(".Module") || !base.contains('.'),
            }
        }
        for base in statics.linearized(class).iter() {
            let definition = self.project.class(*base);
            let text = self.files[self.project.file(base.module)].slice(definition.span);
            out.complete &= !HIDDEN.iter().any(|word| text.contains(word));
            for (name, func) in &definition.methods {
                let at = FuncRef { module: base.module, func: *func };
                let func = self.project.func(at);
                let Some(own) = func.params.first() else { continue };
                let mut scan =
                    Scan { machine: self, at, own: own.local, temps: Vec::new(), ranks: Vec::new(), out: &mut out };
                scan.block(func.body(), name == "__init__" && *base == class);
            }
        }
        out
    }

    /// What a declaration says of a module, for the code that computes with it.
    fn hand_on(&mut self, rule: &IntrinsicRule, object: ObjId, target: &Target, place: Place) {
        let layouts = |m: &Self, part: &str| m.layouts_of(rule, object, part).unwrap_or_default();
        let local = !self.is_without(rule, object, "local");
        let (from, to) = (layouts(self, "input-from"), layouts(self, "input-to"));
        let one = |m: &Self, part: &str| match m.layout_of(rule, object, part) {
            super::Given::Layout(layout) => Some(layout),
            _ => None,
        };
        let mut inside = from.clone();
        for (name, layout) in to {
            match inside.iter_mut().find(|(n, _)| *n == name) {
                Some(entry) => entry.1 = layout,
                None => inside.push((name, layout)),
            }
        }
        let output = match self.is_without(rule, object, "output-to") {
            true => one(self, "output-from"),
            false => one(self, "output-to"),
        };
        let known = |list: Vec<(Name, Option<Arc<DeclaredLayout>>)>| {
            list.into_iter().filter_map(|(name, layout)| Some((name, layout?))).collect()
        };
        let sharded = Sharded {
            class: target.class,
            owner: target.owner.clone(),
            place,
            local,
            states: known(layouts(self, "states")),
            outside: known(from),
            inside: known(inside),
            output,
        };
        if !self.quiet && !self.out.sharded.contains(&sharded) {
            self.out.sharded.push(sharded);
        }
    }
}

/// The annotation of a field, if this line annotates it.
fn annotated<'t>(line: &'t str, field: &str) -> Option<&'t str> {
    let rest = line.trim_start().strip_prefix(field)?.trim_start().strip_prefix(':')?;
    let rest = rest.split('#').next().unwrap_or(rest);
    Some(rest.split('=').next().unwrap_or(rest).trim())
}

/// A walk over a method for the states that it gives its object.
struct Scan<'m, 'p, 'o> {
    machine: &'m Machine<'p>,
    at: FuncRef,
    own: crate::ir::LocalId,
    /// Locals that hold a parameter, and tensors with so many dims.
    temps: Vec<crate::ir::LocalId>,
    ranks: Vec<(crate::ir::LocalId, usize)>,
    out: &'o mut States,
}

impl Scan<'_, '_, '_> {
    /// `certain`: every object runs this block.
    fn block(&mut self, block: &Block, certain: bool) {
        for node in block {
            match &node.stmt {
                Stmt::Assign { dst, value } => self.assign(*dst, value),
                Stmt::SetAttr { base: Operand::Local(base), name, value: Operand::Local(value) }
                    if *base == self.own && self.temps.contains(value) =>
                {
                    let rank = self.ranks.iter().find(|(local, _)| local == value).map(|(_, rank)| *rank);
                    self.out.ranks.extend(rank.map(|rank| (name.clone(), rank)));
                    self.state(name, certain, node.id);
                }
                // Another value may be a state as well.
                Stmt::SetAttr { base: Operand::Local(base), name, .. } if *base == self.own => {
                    self.out.certain.retain(|(n, _)| n != name);
                    self.out.names.push(name.clone());
                }
                other => other.blocks().for_each(|b| self.block(b, false)),
            }
        }
    }

    fn assign(&mut self, dst: crate::ir::LocalId, value: &Rvalue) {
        match value {
            Rvalue::CallMethod { base: Operand::Local(base), name, args } if *base == self.own => {
                if !REGISTERS.contains(&name.as_str()) {
                    return;
                }
                match args.first().map(|a| &a.value) {
                    Some(Operand::Const(Const::Str(name))) => self.out.names.push(name.clone()),
                    _ => self.out.complete = false,
                }
            }
            Rvalue::CallMethod { name, args, .. } if name == "Parameter" => self.parameter(dst, args),
            Rvalue::Call { callee: Operand::Global(name), args } if name == "Parameter" => self.parameter(dst, args),
            Rvalue::CallMethod { name, args, .. } if FACTORIES.contains(&name.as_str()) => {
                let sizes = args.iter().filter(|a| a.kind == ArgKind::Positional).count();
                // One argument may be all sizes.
                if sizes > 1 {
                    self.ranks.push((dst, sizes));
                }
            }
            _ => {}
        }
    }

    fn parameter(&mut self, dst: crate::ir::LocalId, args: &[Arg]) {
        self.temps.push(dst);
        let data = args.first().and_then(|a| match a.value {
            Operand::Local(local) => self.ranks.iter().find(|(l, _)| *l == local).map(|(_, rank)| *rank),
            _ => None,
        });
        self.ranks.extend(data.map(|rank| (dst, rank)));
    }

    fn state(&mut self, name: &Name, certain: bool, id: StmtId) {
        let func = self.machine.project.func(self.at);
        let span = func.spans().get(id).unwrap_or_default();
        let place = Place { file: self.machine.project.file(self.at.module), span };
        if certain && !self.out.names.contains(name) {
            self.out.certain.push((name.clone(), place));
        }
        self.out.names.push(name.clone());
    }
}
