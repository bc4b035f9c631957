//! Switches that are stored or taken and never looked at, beside communication that they should decide. In: the project.
//! Out: the switch, and what runs whatever it says. Never: a switch that anything in the project reads, under any receiver, or a class
//! with a base outside the project that may read it. Next: `mod.rs`.

use super::expr::Expr;
use super::found::Practice;
use super::view::View;
use super::{Class, Found, Lint};
use crate::ir::{ArgKind, Const, FuncId, FuncKind, LocalKind, Node, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::rules::Entry;
use crate::source::{Name, Place};
use rustc_hash::FxHashSet;

/// Parts of names of switches that say whether or how something communicates.
const SWITCHES: &[&str] = &[
    "sequence_parallel",
    "expert_parallel",
    "context_parallel",
    "allreduce",
    "all_reduce",
    "grad_reduce",
    "reduce_grad",
    "reduce_scatter",
    "dgrad",
    "gather_output",
    "sp_mode",
    "tp_mode",
    "input_is_parallel",
];

/// Each switch has one of these words.
pub const WORDS: &[&str] = &["parallel", "reduce", "dgrad", "gather_output", "p_mode"];

/// The length of the shortest switch.
const SHORTEST: usize = 5;

/// Ends of names that are no switches.
const NO_SWITCHES: &[&str] = &[
    "_group", "_rank", "_ranks", "_mesh", "_stream", "_handle", "_op", "_func", "_fn", "_cls", "_time", "_size",
    "_degree",
];

/// Names under which a configuration is kept: reading the flag there is not reading the copy.
const CONFIGS: &[&str] = &["config", "cfg", "args", "conf"];

/// Whether a name is one of a switch.
pub fn is_switch(name: &str) -> bool {
    // Most names are shorter than any switch, or have none of the words that switches are made of.
    name.len() >= SHORTEST
        && WORDS.iter().any(|w| name.contains(w))
        && SWITCHES.iter().any(|s| name.contains(s))
        && !NO_SWITCHES.iter().any(|e| name.ends_with(e))
}

/// Attributes that some function of a project reads, however.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reads {
    names: FxHashSet<Name>,
}

impl Reads {
    /// Reads of switches in one function: of attributes of anything but a configuration, and names in strings.
    pub fn add(&mut self, view: &View<'_>) {
        for step in 0..view.steps.len() {
            for operand in view.reads(step) {
                if let Operand::Const(Const::Str(text)) = operand
                    && is_switch(text)
                {
                    self.names.insert(text.clone());
                }
            }
            match view.value(step) {
                Some(Rvalue::Attr { base, name } | Rvalue::CallMethod { base, name, .. }) if is_switch(name) => {
                    let config = view.expr(base).last_name().is_some_and(|n| CONFIGS.contains(&n))
                        || matches!(base, Operand::Local(l) if CONFIGS.contains(&view.local_name(*l).as_str()));
                    if !config {
                        self.names.insert(name.clone());
                    }
                }
                // `vars(self)`, `self.__dict__`, `**self.__dict__`: everything may be read.
                Some(Rvalue::Attr { name, .. }) if name == "__dict__" => {
                    self.names.insert(Name::from("__dict__"));
                }
                _ => {}
            }
        }
    }

    pub fn join(&mut self, other: &Reads) {
        self.names.extend(other.names.iter().cloned());
    }
}

/// Whether a statement, or one inside it, stores an attribute that is named like a switch.
fn stores_switch(node: &Node) -> bool {
    match &node.stmt {
        Stmt::SetAttr { name, .. } => is_switch(name),
        stmt => stmt.blocks().any(|block| block.iter().any(stores_switch)),
    }
}

/// Attributes of a class, or of the context of an autograd function, that nothing reads.
pub fn stored<'a>(lint: &Lint<'a>, class: &Class<'a>, out: &mut Found) {
    if !class.switches {
        return;
    }
    let class = class.at;
    let definition = lint.project.class(class);
    if !lint.taken.digests.of(lint.project, class.module).assigned.keys().any(|name| is_switch(name)) {
        return;
    }
    let stores =
        |func: FuncId| lint.project.func(FuncRef { module: class.module, func }).body().iter().any(stores_switch);
    if !definition.methods.iter().any(|(n, f)| (n == "forward" || n == "__init__") && stores(*f)) {
        return;
    }
    if !lint.may_be_complete(class) {
        return;
    }
    let maker = if lint.is_autograd(class) { "forward" } else { "__init__" };
    let Some((_, made)) = definition.methods.iter().find(|(n, _)| n == maker) else { return };
    if !stores(*made) {
        return;
    }
    let methods: Vec<(Name, View<'_>)> = definition
        .methods
        .iter()
        .map(|(n, f)| (n.clone(), lint.view(FuncRef { module: class.module, func: *f })))
        .collect();
    let Some((_, init)) = methods.iter().find(|(n, _)| n == maker) else { return };
    let Some(receiver) = init.func.params.first() else { return };
    for step in 0..init.steps.len() {
        let Stmt::SetAttr { base: Operand::Local(base), name, value } = init.steps[step].stmt else { continue };
        let read = match maker {
            "forward" => methods.iter().any(|(_, v)| reads_context(v, name)),
            _ => lint.reads().names.contains(name) || lint.reads().names.contains("__dict__"),
        };
        if *base != receiver.local || !is_switch(name) || read {
            continue;
        }
        // Overwritten by a constant, computed elsewhere, or used here as well: not a switch that is handed through and dropped.
        if !is_handed_through(init, value) {
            continue;
        }
        let runs: Vec<Place> = match maker {
            "forward" if is_decided_by_caller(lint, class, init, value) => {
                methods.iter().filter(|(n, _)| n == "backward").flat_map(|(_, v)| returns(v)).collect()
            }
            "forward" => Vec::new(),
            _ => methods.iter().flat_map(|(_, v)| communication(v, init)).collect(),
        };
        if runs.is_empty() {
            continue;
        }
        let place = init.place(init.steps[step].id);
        out.push((place, Practice::IgnoredSwitch { owner: definition.name.clone(), switch: name.clone(), runs }));
    }
}

/// A parameter, or a flag of a configuration, that this function does nothing else with.
fn is_handed_through(view: &View<'_>, value: &Operand) -> bool {
    match view.expr(value) {
        Expr::Local(local) if view.is_param(local) => {
            let uses = (0..view.steps.len())
                .flat_map(|s| view.reads(s))
                .filter(|o| matches!(o, Operand::Local(l) if *l == local));
            // Tuples of targets read it twice: once into the tuple.
            uses.count() <= 1 && view.func.locals()[local].kind == LocalKind::Plain
        }
        Expr::Attr(base, _) => {
            base.last_name().is_some_and(|n| CONFIGS.contains(&n))
                || matches!(*base, Expr::Local(l) if CONFIGS.contains(&view.local_name(l).as_str()))
        }
        _ => false,
    }
}

/// Whether a call of an autograd function in its module computes the switch: a constant or a parameter handed on decides nothing.
fn is_decided_by_caller(lint: &Lint<'_>, class: ClassRef, forward: &View<'_>, value: &Operand) -> bool {
    let Expr::Local(local) = forward.expr(value) else { return false };
    let Some(at) = forward.func.params.iter().position(|p| p.local == local) else { return false };
    let name = &lint.project.class(class).name;
    let funcs = lint.project.modules[class.module].ir.funcs.iter_enumerated();
    let mut functions = funcs.filter(|(_, f)| f.kind == FuncKind::Function);
    functions.any(|(func, _)| {
        let view = lint.view(FuncRef { module: class.module, func });
        (0..view.steps.len()).any(|s| match view.value(s) {
            Some(Rvalue::CallMethod { base: Operand::Global(base), name: method, args })
                if base == name && method == "apply" =>
            {
                let given = at.checked_sub(1).and_then(|i| args.get(i)).map(|a| view.through(&a.value));
                !matches!(given, None | Some(Expr::Const(_) | Expr::Local(_) | Expr::Unknown))
            }
            _ => false,
        })
    })
}

/// Whether a method reads an attribute of its context, or hands the context on.
fn reads_context(view: &View<'_>, name: &str) -> bool {
    let Some(context) = view.func.params.first().map(|p| p.local) else { return false };
    let is_context = |o: &Operand| matches!(o, Operand::Local(l) if *l == context);
    (0..view.steps.len()).any(|s| match view.value(s) {
        Some(Rvalue::Attr { base, name: read }) => is_context(base) && read == name,
        Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) => args.iter().any(|a| is_context(&a.value)),
        _ => false,
    })
}

fn returns(view: &View<'_>) -> Vec<Place> {
    let ends = view.steps.iter().filter(|s| matches!(s.stmt, Stmt::Return { .. }));
    ends.map(|s| view.place(s.id)).collect()
}

/// Calls that communicate, and what decides whether they run, if that looks at no switch.
fn communication(view: &View<'_>, init: &View<'_>) -> Vec<Place> {
    let mut out = Vec::new();
    for step in 0..view.steps.len() {
        let Some(value) = view.value(step) else { continue };
        if !communicates(view, value) {
            continue;
        }
        let mut deciding = Vec::new();
        for guard in view.steps[step].guards.iter() {
            match guard.test {
                Operand::Local(local) if !view.is_temp(*local) => {
                    deciding.extend(view.defs(*local).iter().map(|d| view.place(view.steps[*d].id)));
                }
                test => match view.expr(test) {
                    Expr::Attr(_, name) => deciding.extend(stores(init, &name)),
                    _ => deciding.push(view.part(guard.at, 0)),
                },
            }
        }
        out.push(view.place(view.steps[step].id));
        out.extend(deciding);
    }
    out
}

/// Where a constructor stores an attribute.
fn stores(init: &View<'_>, attr: &Name) -> Vec<Place> {
    let set = init.steps.iter().filter(|s| matches!(s.stmt, Stmt::SetAttr { name, .. } if name == attr));
    set.map(|s| init.place(s.id)).collect()
}

/// A collective, or something that is given a group to communicate over.
fn communicates<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    if view.collective(value).is_some() {
        return true;
    }
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return false };
    args.iter().any(|a| matches!(&a.kind, ArgKind::Keyword(k) if k == "process_group"))
}

/// A function that chooses a group and does not look at a parameter that is there to choose.
pub fn group_choices(view: &View<'_>, out: &mut Found) {
    if view.func.kind != FuncKind::Function {
        return;
    }
    for param in view.func.params.iter().filter(|p| is_switch(&p.name)) {
        if view.is_read(param.local) || view.func.is_generator {
            continue;
        }
        let groups: Vec<Place> = view
            .steps
            .iter()
            .filter_map(|s| match s.stmt {
                Stmt::Return { value } if is_group(view, value) => Some(view.place(s.id)),
                _ => None,
            })
            .collect();
        let returns = view.steps.iter().filter(|s| matches!(s.stmt, Stmt::Return { .. })).count();
        if groups.len() == 1 && returns == 1 {
            let owner = view.func.name.clone();
            out.push((
                groups[0],
                Practice::IgnoredSwitch { owner, switch: param.name.clone(), runs: vec![view.spot(param.span)] },
            ));
        }
    }
}

/// Whether an operand is the result of a call that gives a group.
fn is_group(view: &View<'_>, operand: &Operand) -> bool {
    match view.through(operand) {
        Expr::Call { callee, .. } => match callee.path() {
            Some(path) => matches!(view.rules.get(path), Some(Entry::Group(_))),
            None => false,
        },
        _ => false,
    }
}
