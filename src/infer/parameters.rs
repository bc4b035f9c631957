//! What parameters without a mark are: whole on every rank, and summed by nobody. In: an object after its constructor, the protocol of
//! the framework that its file is written for, the reducers of the project. Out: `I` on the axes of the protocol. Never: a parameter
//! whose size is divided, that is marked, or that some reducer may cover. Source: DESIGN.md section 7. Next: `practice/reducers.rs`.

use super::formula::{Formula, Outcome};
use super::heap::{Cell, ListCell, ObjectClass};
use super::machine::Machine;
use super::own_protocol::{is_over_data, may_differ_by_rank};
use super::practice::hints::{Hint, hints};
use super::practice::reducers::{Covered, Reducer};
use super::practice::sizes::{Size, made_of, says_part};
use super::practice::view::View;
use super::value::{ObjId, Value};
use super::world::World;
use crate::ir::annotation::Cond;
use crate::ir::{Const, FuncId, FuncKind, Operand, Stmt};
use crate::project::{Binding, ClassRef, FuncRef, ModuleId, Project, Resolved};
use crate::rules::{ProtocolRule, RuleBook};
use crate::source::{Name, Place, Span};
use crate::types::{Axis, AxisState, AxisType, Origin, Reason, Spmd, Tri};
use std::sync::Arc;

/// The axes over which code of a module leaves unmarked parameters whole, with the names that its framework covers.
pub fn protocol<'a>(project: &Project, rules: &'a RuleBook, module: ModuleId) -> Option<&'a ProtocolRule> {
    rules.protocols().get(protocol_at(project, rules, module)?)
}

/// Its place among the protocols: that of the package of the module, or the first one of which the module imports something.
pub fn protocol_at(project: &Project, rules: &RuleBook, module: ModuleId) -> Option<usize> {
    let of = |path: &str| rules.protocols().iter().position(|p| p.has(path));
    let imported = |binding: &Binding| match binding {
        Binding::Import(import) => of(&project.absolute(module, &import.path, import.level)),
        Binding::Func(_) | Binding::Class(_) | Binding::Value => None,
    };
    of(project.name(module)).or_else(|| project.bindings(module).filter_map(|(_, b)| imported(b)).min())
}

impl Machine<'_> {
    /// Gives the unmarked parameters of a finished object their types, in each of its worlds.
    pub fn settle(&mut self, class: ClassRef, object: &Value, worlds: &mut [World]) {
        let Value::Object(receiver) = object else { return };
        let notes = self.constructor_hints(class);
        let layer = self.rule_of_class(class);
        let mut unmarked: Vec<(ObjId, Axis)> = Vec::new();
        for world in worlds.iter_mut() {
            self.noted(*receiver, &notes, world);
            let all = parameters(world, *receiver);
            for (name, tensor, home) in all.iter().map(|(n, t, h)| (n, *t, *h)) {
                let Some(module) = self.module_of(home) else { continue };
                let Some(rule) = self.settings.protocol(self.rules, module) else { continue };
                let marks = |mark: &str| self.rules.mark(mark).is_some();
                let reducers = self.settings.reducers();
                let promised = rule.summed_names.iter().any(|part| name.contains(part.as_str()));
                let summed = promised && !reducers.replaces(&rule.axes, &marks);
                // One that is made like another whose gradient is summed for its name needs the sum as well.
                let text = |place: Place| self.files[place.file].slice(place.span);
                let alike = || {
                    all.iter()
                        .any(|(n, _, h)| n != name && text(*h) == text(home) && reducers.takes_by_name(n, &rule.axes))
                };
                // What the framework itself sums over groups that it is given, the protocol says.
                let told = |r: &Reducer| {
                    r.axes.is_none() && rule.has(self.project.name(r.func.module))
                        || rule.packages.is_empty() && is_over_data(self.files, r)
                };
                let covered = || reducers.covers_made((name, text(home)), &rule.axes, &marks, &told) != Covered::No;
                // Of a layer that a rule types the parameters that are split are known.
                let whole_of_layer =
                    layer.as_ref().is_some_and(|l| !l.params.is_empty() && l.params.iter().all(|(n, _)| n != name));
                let derives = |c: ClassRef| self.settings.linearized(self.project, c).contains(&class);
                let holder = self.holders(home);
                let marked = || self.settings.marking.may_mark(class, name, (&derives, &holder), whole_of_layer);
                let by_name = self.settings.reducers().only_when(name, &rule.axes, &marks).map(conjunction);
                // Not summed here: the one reducer that takes it does not run in this configuration.
                let off = by_name.as_ref().is_some_and(|f| f.eval(&world.facts) == Outcome::Decided(false));
                // A program without a framework may have parameters of each rank, and change others without their gradients.
                let updates = || text(self.class_place(class)).contains("no_grad");
                let own = || may_differ_by_rank(name, if self.routes_at(module, name, home) { "" } else { text(home) });
                if rule.packages.is_empty() && (own() || updates()) {
                    continue;
                }
                let whole = || whole_of_layer || self.is_whole(class, module, name, home) || alike();
                if !off && (summed || covered())
                    || marked()
                    || !whole()
                    || self.is_frozen_elsewhere(module, class, name)
                {
                    continue;
                }
                let at = self.taken_from(class, name, home).map_or(home, |(at, _)| at);
                let Some(t) = world.heap.tensor_mut(tensor) else { continue };
                for axis in rule.axes.iter().map(|a| self.settings.canonical(a)) {
                    if t.local.get(&axis).set.is_unknown() {
                        let reason = Reason::Unmarked(Name::from(name.as_str()));
                        let origin = Origin::new(at, reason, Some(Spmd::Invariant));
                        t.local.set(&axis, AxisState { set: AxisType::I, shard: None, nest: 0, origin: Some(origin) });
                        unmarked.push((tensor, axis));
                    }
                }
            }
            self.settle_whole(class, &all, world);
        }
        if worlds.len() > 1 {
            unmarked.iter().for_each(|(tensor, axis)| self.marked_elsewhere(*tensor, axis, worlds));
        }
    }

    /// Where a class is.
    fn class_place(&self, class: ClassRef) -> Place {
        Place { file: self.project.file(class.module), span: self.project.class(class).span }
    }

    /// Notes of a parameter that is marked in some configurations what it is that decides, for those in which it is not.
    fn marked_elsewhere(&self, tensor: ObjId, axis: &Axis, worlds: &mut [World]) {
        let marked = worlds.iter().find_map(|world| {
            let origin = world.heap.tensor(tensor)?.local.get(axis).origin.clone()?;
            let marks = matches!(origin.reason, Reason::Parameter) && origin.decided == Some(Spmd::Replicate);
            marks.then_some(origin.place)
        });
        let Some(place) = marked.map(|mark| self.condition_of(mark).unwrap_or(mark)) else { return };
        let origin = Origin::new(place, Reason::MarkedWhere, Some(Spmd::Replicate));
        for world in worlds {
            let Some(t) = world.heap.tensor_mut(tensor) else { continue };
            let mut state = t.local.get(axis).clone();
            if let Some(known) = state.origin.as_mut().filter(|o| matches!(o.reason, Reason::Unmarked(_))) {
                Arc::make_mut(known).from = Some(origin.clone());
                t.local.set(axis, state);
            }
        }
    }

    /// The innermost condition around a statement.
    fn condition_of(&self, place: Place) -> Option<Place> {
        let view = View::new(self.project, self.rules, self.files, self.project.function_at(place)?);
        let step = view.steps.iter().find(|step| view.place(step.id) == place)?;
        let test = view.test_of(step.guards.last()?)?;
        Some(view.place(view.steps[test].id))
    }

    /// Tells apart the configurations in which the one reducer that takes a parameter by its name runs, and in which not.
    pub fn split_by_reducers(&mut self, object: &Value, worlds: &mut Vec<World>) {
        let Value::Object(receiver) = object else { return };
        let Some(first) = worlds.first() else { return };
        let settings = self.settings;
        let marks = |mark: &str| self.rules.mark(mark).is_some();
        let formula = parameters(first, *receiver).into_iter().find_map(|(name, _, home)| {
            let rule = settings.protocol(self.rules, self.module_of(home)?)?;
            settings.reducers().only_when(&name, &rule.axes, &marks).map(conjunction)
        });
        let Some(formula) = formula.filter(|_| worlds.len() * 2 <= super::limits::MAX_WORLDS) else { return };
        let mut sides = Vec::new();
        for world in worlds.drain(..) {
            self.split(&formula, world, &mut |_, side, _| sides.push(side));
        }
        *worlds = sides;
    }

    /// Whether a call lists the parameters of an object in a constructor, which marks them in a loop, and all that are known are few:
    /// `layer.parameters()`, `layer.named_parameters()`.
    pub(super) fn lists_parameters(&self, of: ObjId, method: &Name) -> bool {
        let few = || (1..=super::limits::MAX_UNROLLED).contains(&parameters(&self.w, of).len());
        matches!(method.as_str(), "parameters" | "named_parameters") && self.in_constructor() && few()
    }

    /// The parameters of an object, with their names where these are asked for.
    pub(super) fn listed_parameters(&mut self, of: ObjId, method: &Name) -> Value {
        let item = |(name, tensor, _): (String, ObjId, Place)| match method.as_str() {
            "parameters" => Value::Tensor(tensor),
            _ => Value::tuple(vec![Value::Const(Const::Str(name.into())), Value::Tensor(tensor)]),
        };
        let items = parameters(&self.w, of).into_iter().map(item).collect();
        Value::List(self.fresh(Cell::List(ListCell { items, rest: None })))
    }

    /// The class in whose constructor a parameter is made, and those that it is derived from.
    pub(super) fn holders(&self, home: Place) -> Vec<ClassRef> {
        let class = self.project.function_at(home).and_then(|at| {
            let class = self.project.func(at).class?;
            Some(ClassRef { module: at.module, class })
        });
        class.map_or_else(Vec::new, |class| self.settings.linearized(self.project, class).to_vec())
    }

    /// The module of a place.
    fn module_of(&self, place: Place) -> Option<ModuleId> {
        self.project.module_of(place.file)
    }

    /// Types that comments such as `# [out, in/tp]` give to attributes.
    fn noted(&self, receiver: ObjId, notes: &[Hint], world: &mut World) {
        for hint in notes {
            for attr in &hint.attrs {
                let value = world.heap.object(receiver).and_then(|o| o.get(attr)).cloned();
                if let Some(Value::Tensor(tensor)) = value {
                    self.noted_tensor(tensor, hint, world);
                }
            }
        }
    }

    fn noted_tensor(&self, tensor: ObjId, hint: &Hint, world: &mut World) {
        let Some(t) = world.heap.tensor_mut(tensor) else { return };
        for (dim, axis) in &hint.shards {
            let axis = self.settings.canonical(axis);
            if t.local.get(&axis).set.is_unknown() {
                let origin = Origin::new(hint.place, Reason::Declared, Some(Spmd::Varying));
                let shard = i8::try_from(*dim).ok();
                t.local.set(&axis, AxisState { set: AxisType::V, shard, nest: 0, origin: Some(origin) });
            }
        }
    }

    fn constructor_hints(&self, class: ClassRef) -> Vec<Hint> {
        let methods = &self.project.class(class).methods;
        let Some((_, func)) = methods.iter().find(|(name, _)| name == "__init__") else { return Vec::new() };
        let at = FuncRef { module: class.module, func: *func };
        if !self.may_hint(at) {
            return Vec::new();
        }
        let view = View::new(self.project, self.rules, self.files, at);
        let mut found: Vec<Hint> =
            hints(&view).into_iter().filter(|h| !h.attrs.is_empty() && !h.shards.is_empty()).collect();
        found.iter_mut().for_each(|hint| self.of_own_groups(&view, hint));
        found
    }

    /// `in/etp` beside a parameter `etp_group` of the function or of the constructor of its class is the size of that group.
    fn of_own_groups(&self, view: &View<'_>, hint: &mut Hint) {
        let init = view.func.class.and_then(|class| {
            let methods = &self.project.modules[view.at.module].ir.classes[class].methods;
            let (_, func) = methods.iter().find(|(name, _)| name == "__init__")?;
            Some(self.project.func(FuncRef { module: view.at.module, func: *func }))
        });
        for (_, axis) in &mut hint.shards {
            let group = format!("{axis}_group");
            let given = [Some(view.func), init]
                .into_iter()
                .flatten()
                .any(|f| f.params.iter().any(|p| p.name == group.as_str()));
            if given && self.settings.group_named(&group).is_none() {
                *axis = Axis::variable(&group).0.to_string();
            }
        }
    }

    /// Whether a function has comments that show how a tensor is split.
    pub fn may_hint(&self, at: FuncRef) -> bool {
        let text = self.files[self.project.file(at.module)].slice(self.project.func(at).span);
        super::relevance::shows_split(text)
    }

    /// Whether a parameter is whole: its sizes are those of the configuration, or, in a class that marks others of its parameters,
    /// those that it is given; and no name or division says that it is a part.
    fn is_whole(&self, holder: ClassRef, module: ModuleId, name: &str, home: Place) -> bool {
        let Some(at) = self.project.func_around(module, home.span) else { return false };
        let f = self.project.func(at);
        let routes = self.routes_at(module, name, home);
        if says_part(name) || !routes && says_part(self.files[home.file].slice(home.span)) {
            return false;
        }
        if self.may_be_frozen(holder, module, name, home) {
            return false;
        }
        let view = View::new(self.project, self.rules, self.files, at);
        let Some(step) = (0..view.steps.len()).find(|s| view.place(view.steps[*s].id) == home) else { return false };
        let class = f.class.map(|class| ClassRef { module, class });
        // What its sizes say for sure needs no name.
        let made = match made_of(&view, step, 0) {
            Size::Whole => Size::Whole,
            _ if routes => Size::Named,
            other => other,
        };
        match made {
            Size::Whole => true,
            Size::Named | Size::Given if class.is_none() => {
                self.settings.marking.goes_by_marks(holder)
                    && self.taken_from(holder, name, home).is_some_and(|(_, whole)| whole)
            }
            Size::Named if class.is_some_and(|c| !self.is_made(c)) => true,
            Size::Named | Size::Given => {
                let marking = &self.settings.marking;
                let text = self.files[home.file].slice(f.span);
                class.is_some_and(|c| marking.goes_by_marks(c) || marking.is_made_whole(c))
                    || f.name == "__init__" && class.is_some() && marking.hands_to_marker(text)
            }
            Size::Part => false,
        }
    }

    /// Whether a parameter is frozen somewhere: it needs no sum.
    fn may_be_frozen(&self, holder: ClassRef, module: ModuleId, name: &str, home: Place) -> bool {
        let Some(at) = self.project.func_around(module, home.span) else { return true };
        let f = self.project.func(at);
        let class_span = f.class.map_or(f.span, |class| self.project.class(ClassRef { module, class }).span);
        let classes = self.project.modules[module].ir.classes.iter().map(|c| c.span).collect::<Vec<_>>();
        // What a function makes the class that takes it may freeze.
        let taken = self.class_place(holder);
        may_freeze(self.files[home.file].slice(class_span), name)
            || f.class.is_none() && may_freeze(self.files[taken.file].slice(taken.span), name)
            || freezes_beside(self.files[home.file].whole(), &classes)
    }

    /// Where the constructor of a class takes a parameter from a function that makes it, and whether with sizes that are given or of the
    /// configuration; `None` if it does not, or sets it in several ways.
    fn taken_from(&self, holder: ClassRef, name: &str, home: Place) -> Option<(Place, bool)> {
        let made = self.project.func_around(self.module_of(home)?, home.span)?;
        let f = self.project.func(made);
        if f.class.is_some() || f.kind != FuncKind::Function || f.parent.is_some_and(|parent| parent != FuncId(0)) {
            return None;
        }
        let methods = &self.project.class(holder).methods;
        let (_, func) = methods.iter().find(|(method, _)| method == "__init__")?;
        let at = FuncRef { module: holder.module, func: *func };
        let view = View::new(self.project, self.rules, self.files, at);
        let calls = |value: &Operand| {
            let (step, call) = view.source(value)?;
            let called = matches!(self.project.path(&view.callee(call)?), Resolved::Func(at) if at == made);
            called.then_some(step)
        };
        // Of a layer that the function makes it is the parameter under its name there.
        let attribute = name.split('.').next().unwrap_or(name);
        let mut set = view.steps.iter().filter_map(|step| match step.stmt {
            Stmt::SetAttr { name: attr, value, .. } if attr == attribute => calls(value),
            _ => None,
        });
        let (step, more) = (set.next()?, set.next());
        let place = view.place(view.steps[step].id);
        // What such a function is given are sizes; what it makes of them, and not how it is called, says the rest.
        let given = view.text(place).split_once('(').map_or("", |(_, given)| given);
        let whole = !says_part(given) && made_of(&view, step, 1) != Size::Part;
        more.is_none().then_some((place, whole))
    }

    /// Whether any text makes objects of a class, or derives one from it, and so may give it other sizes than its names say.
    fn is_made(&self, class: ClassRef) -> bool {
        let name = &self.project.class(class).name;
        self.files.times(&format!("{name}(")) > 1 || self.files.any_says(&format!("({name})"))
    }

    /// Types that comments give to the parameters of a root: `# [s/tp, b, h]`. What is known already stays.
    pub fn hinted_root(&mut self, root: FuncRef) {
        if !self.may_hint(root) {
            return;
        }
        let (project, rules, files) = (self.project, self.rules, self.files);
        let view = View::new(project, rules, files, root);
        for mut hint in hints(&view) {
            if hint.shards.is_empty() || !hint.attrs.is_empty() || !hint.at_entry {
                continue;
            }
            self.of_own_groups(&view, &mut hint);
            for local in hint.locals.iter().filter(|l| view.is_param(**l)) {
                let value = self.local(*local);
                if let Some(tensor) = self.as_tensor(&value) {
                    self.hinted_tensor(tensor, &hint);
                }
            }
        }
    }

    /// The conditions under which comments of the present function type its parameters.
    pub fn hint_conditions(&self) -> Vec<Cond> {
        let Some(root) = self.stack.last().map(|a| a.func).filter(|f| self.may_hint(*f)) else { return Vec::new() };
        let view = View::new(self.project, self.rules, self.files, root);
        let typed = hints(&view).into_iter().filter(|h| !h.shards.is_empty() && h.at_entry);
        typed.filter_map(|h| h.under).map(|(flag, _)| Cond::Flag(Name::from(flag))).collect()
    }

    /// Gives a parameter the type of a comment, where its condition holds.
    fn hinted_tensor(&mut self, tensor: ObjId, hint: &Hint) {
        if let Some((flag, wanted)) = hint.under {
            let cond = Cond::Flag(Name::from(flag));
            let formula = self.cond_here(&cond);
            match self.outcome(&formula) {
                super::formula::Outcome::Decided(holds) if holds == wanted => {}
                _ => return,
            }
        }
        let mut world = std::mem::take(&mut self.w);
        self.noted_tensor(tensor, hint, &mut world);
        self.w = world;
    }
}

/// That all of these flags have these values.
fn conjunction(flags: &[(Name, bool, Place)]) -> Formula {
    let one = |(flag, holds, _): &(Name, bool, Place)| {
        let flag = super::settings::cond_formula(&Cond::Flag(flag.clone()));
        if *holds { flag } else { flag.negate() }
    };
    Formula::And(flags.iter().map(one).collect())
}

/// The parameters that an object reaches, with their names and where they were made.
fn parameters(world: &World, receiver: ObjId) -> Vec<(String, ObjId, Place)> {
    let (mut out, mut seen) = (Vec::new(), Vec::new());
    walk(world, receiver, "", 0, &mut seen, &mut out);
    out
}

fn walk(
    world: &World,
    object: ObjId,
    prefix: &str,
    depth: usize,
    seen: &mut Vec<ObjId>,
    out: &mut Vec<(String, ObjId, Place)>,
) {
    if depth > super::limits::MAX_VALUE_DEPTH || seen.contains(&object) {
        return;
    }
    seen.push(object);
    let Some(cell) = world.heap.object(object) else { return };
    let layer = matches!(&cell.class, ObjectClass::External(_));
    for (name, value) in &cell.attrs {
        let path = if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") };
        match value {
            Value::Tensor(id) => {
                let home = world.heap.tensor(*id).filter(|t| t.grad == Tri::Yes).and_then(|t| t.home);
                out.extend(home.map(|home| (path, *id, home)));
            }
            Value::Object(inner) if !layer || !name.starts_with('(') => {
                walk(world, *inner, &path, depth + 1, seen, out)
            }
            Value::List(list) => {
                if let Some(Cell::List(cell)) = world.heap.get(*list) {
                    for item in cell.items.iter().chain(&cell.rest) {
                        if let Value::Object(inner) = item {
                            walk(world, *inner, &path, depth + 1, seen, out);
                        }
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether code beside the classes of a file turns gradients of something off: of an object that it makes, or of what a test of names chooses.
fn freezes_beside(text: &str, classes: &[Span]) -> bool {
    let outside = |at: usize| !classes.iter().any(|class| (class.start as usize..class.end as usize).contains(&at));
    let off = |at: usize, rest: &str| {
        let given = rest.trim_start_matches("_(").trim_start_matches([' ', '=']);
        outside(at) && !given.starts_with("True") && !given.starts_with(')')
    };
    [".requires_grad_(", ".requires_grad ="].iter().any(|word| {
        let after = word.len() - word.trim_start_matches(".requires_grad").len();
        text.match_indices(word)
            .any(|(at, _)| off(at, &text[at + after..]) && !text[at..].starts_with(".requires_grad =="))
    })
}

/// What a line makes without a gradient: `self.weight = nn.Parameter(torch.empty(n), requires_grad=False)`.
fn of_made(line: &str) -> Option<&str> {
    let (target, made) = line.trim().split_once(" = ")?;
    (made.contains("Parameter(") && made.ends_with(')')).then_some(target)
}

/// Whether a class gets what a variable stands for from outside: its constructor keeps it, or has it among its arguments, and nothing sets it.
fn is_given(text: &str, variable: &str) -> bool {
    let kept = text.contains(&format!("self.{variable} = {variable}\n"));
    let mut signatures = text.match_indices("def __init__(").map(|(at, _)| &text[at..]);
    let argument = |signature: &str| {
        let list = signature.split_once("):").or(signature.split_once(") ->")).map_or("", |(list, _)| list);
        list.split(',').any(|one| one.split([':', '=']).next().is_some_and(|name| name.trim() == variable))
    };
    variable != "self" && (kept || signatures.any(argument) && !text.contains(&format!(" {variable} = ")))
}

/// Whether the text of a class may freeze a parameter of this name: it asks for no gradient of anything but other attributes, alone or in
/// a loop over their parameters.
pub(super) fn may_freeze(text: &str, name: &str) -> bool {
    if !text.contains("requires_grad") {
        return false;
    }
    let own = name.split('.').next().unwrap_or(name);
    let other = |of: &str| match of.trim().strip_prefix("self.") {
        Some(rest) => rest.split('.').next().is_some_and(|first| first != own && !first.contains('(')),
        // What the constructor is given, under its name.
        None => of.trim() != own && is_given(text, of.trim()),
    };
    let mut before = "";
    for line in text.lines() {
        if let Some((of, _)) = line.split_once(".requires_grad") {
            let looped = before.trim().strip_prefix("for ").and_then(|l| l.split_once(" in "));
            let of_others = looped.is_some_and(|(variable, rest)| {
                let subject = rest.strip_suffix(".parameters():");
                variable == of.trim() && subject.is_some_and(other)
            });
            if !of_others && !other(of) {
                return true;
            }
        } else if line.contains("requires_grad") && !of_made(line).is_some_and(other) {
            return true;
        }
        if !line.trim().is_empty() {
            before = line;
        }
    }
    false
}
