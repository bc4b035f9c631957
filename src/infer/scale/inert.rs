//! Which functions can be left alone: those from which nothing is reached that sums, averages or wraps a gradient or a loss, so that no path
//! through them carries a factor to speak of. In: a root, and what the module's own statements leave. Out: whether it is executed. Never:
//! words: what a function mentions is resolved as execution resolves it, and what is not followed counts as reached. Next: `mod.rs`.

use super::Run;
use super::calls::{LOSS_CLASSES, LOSSES};
use super::known::Call;
use super::methods::WRAPS;
use super::value::{State, Val, last};
use crate::infer::limits::{MAX_EXPR_DEPTH, MAX_VALUE_DEPTH};
use crate::infer::practice::view::View;
use crate::infer::value::Value;
use crate::ir::{Arg, Const, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::project::{ClassRef, FuncRef};
use crate::rules::Entry;
use crate::source::{Idx, Name};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::rc::Rc;

/// Functions that are looked at for one root; one that reaches more is executed.
const MOST_FUNCTIONS: usize = 96;

/// Modules that are handed on where they are not followed; with more a root is executed.
const MOST_HANDED: usize = 3;

/// Functions of the language that give back nothing of what they are given.
const TESTS: &[&str] = &["isinstance", "issubclass", "callable", "len", "print", "id", "type", "str", "repr"];

/// Without one of these names nothing gets hold of a gradient.
const GRADIENTS: &[&str] = &["grad", "main_grad", "register_hook", "register_post_accumulate_grad_hook"];

/// Without one of these, or a loss, nothing makes one value of those of many tokens.
const SUMS: &[&str] = &["sum", "mean", "stack", "cat", "hstack", "concat"];

/// What a function mentions.
#[derive(Debug, Default)]
struct Mentions {
    funcs: Vec<FuncRef>,
    classes: Vec<ClassRef>,
    /// Attributes and methods of what is no path, and the last parts of paths.
    names: FxHashSet<Name>,
    /// Something wraps, trains, or cannot be followed.
    acts: bool,
    /// It reduces something, and receives something.
    reduces: bool,
    receives: bool,
    /// A path from which something that trains may be read is handed on.
    strays: bool,
    /// Modules and packages of the project that are handed on.
    handed: Vec<Name>,
    /// Strings that may be names.
    strings: FxHashSet<Name>,
    /// An attribute is read by a name that is a value.
    asks: bool,
}

/// What is known of the functions of a run.
#[derive(Default)]
pub struct Inert {
    of: FxHashMap<FuncRef, Rc<Mentions>>,
    /// Whether nothing is wrapped by the module's own statements and for them, once somebody asked.
    plain: Option<bool>,
}

/// What one root reaches.
#[derive(Default)]
struct Reached {
    funcs: FxHashSet<FuncRef>,
    todo: Vec<FuncRef>,
    classes: Vec<ClassRef>,
    /// How many of them have been asked for their methods, and the methods of which nothing has been named so far.
    asked: usize,
    unnamed: Vec<(Name, FuncRef)>,
    names: FxHashSet<Name>,
    reduces: bool,
    receives: bool,
    strays: bool,
    handed: Vec<Name>,
    /// Names that were looked up in what is handed on.
    led: Vec<FxHashSet<Name>>,
    strings: FxHashSet<Name>,
    asks: bool,
}

impl Reached {
    fn func(&mut self, at: FuncRef) {
        if self.funcs.insert(at) {
            self.todo.push(at);
        }
    }
}

impl<'a> Run<'a> {
    /// Whether an execution of a root can tell nothing.
    pub fn is_inert(&mut self, at: FuncRef, start: &State) -> bool {
        let open = self.settings.wants_types || self.settings.gradient_mean.is_some() || !self.applied.is_empty();
        if open || !self.leaves_plain(at, start) {
            return false;
        }
        let func = self.project.func(at);
        let class = func.class.map(|class| ClassRef { module: at.module, class });
        let init = class.and_then(|c| self.method(c, "__init__")).filter(|_| func.name != "__init__");
        let trained = |run: &Self, of: FuncRef| {
            run.project.func(of).params.iter().any(|p| run.rule_of(of, p).is_some() || run.is_wrapped(of, p))
        };
        if trained(self, at) || init.is_some_and(|init| trained(self, init)) {
            return false;
        }
        let mut reached = Reached::default();
        reached.func(at);
        init.into_iter().chain(self.maker(at)).for_each(|of| reached.func(of));
        if !class.is_none_or(|class| self.add_class(class, &mut reached)) || !self.reaches_nothing(&mut reached, start)
        {
            return false;
        }
        let own = func.params.first().is_some_and(|p| p.name == "self");
        if let (Some(class), Some(_), true) = (class, init, own)
            && !self.made.contains_key(&class)
        {
            self.passed.insert(class);
        }
        true
    }

    /// Whether the own statements of the module wrap nothing, and nothing in the file wraps what it is given.
    fn leaves_plain(&mut self, at: FuncRef, start: &State) -> bool {
        if let Some(known) = self.inert.plain {
            return known;
        }
        let bare = start.trainers.is_empty()
            && start.classes.is_empty()
            && start.modules.iter().all(|m| m.wraps.is_empty() && m.trainer.is_none() && !m.assumed);
        let plain = bare && self.may_build(at.module).is_empty();
        self.inert.plain = Some(plain);
        plain
    }

    /// A class of which an object may be made; whether what it is derived from leaves backward passes to it.
    fn add_class(&mut self, class: ClassRef, reached: &mut Reached) -> bool {
        if !reached.classes.contains(&class) {
            if self.base(class).is_some() {
                return false;
            }
            reached.classes.push(class);
        }
        true
    }

    fn reaches_nothing(&mut self, reached: &mut Reached, start: &State) -> bool {
        loop {
            while let Some(at) = reached.todo.pop() {
                let mentions = self.mentions(at, start);
                if reached.funcs.len() > MOST_FUNCTIONS || !self.absorb(&mentions, reached) {
                    return false;
                }
            }
            self.add_methods(reached);
            if !self.reads_handed(reached, start) {
                return false;
            }
            let settled = reached.led.iter().all(|led| led.len() == reached.names.len());
            if reached.todo.is_empty() && settled {
                return true;
            }
        }
    }

    /// Adds the methods of classes of which objects may be made, where their names are read.
    fn add_methods(&self, reached: &mut Reached) {
        while let Some(class) = reached.classes.get(reached.asked) {
            reached.asked += 1;
            for c in self.settings.statics.linearized(*class).iter() {
                let methods = self.project.class(*c).methods.iter().filter(|(name, _)| name != "__init__");
                let named = methods.map(|(name, func)| (name.clone(), FuncRef { module: c.module, func: *func }));
                reached.unnamed.extend(named);
            }
        }
        let all = std::mem::take(&mut reached.unnamed).into_iter();
        let (named, unnamed): (Vec<_>, Vec<_>) = all.partition(|(name, _)| reached.names.contains(name));
        reached.unnamed = unnamed;
        named.into_iter().for_each(|(_, at)| reached.func(at));
    }

    /// What may be read of modules that are handed on: whatever has a name that is read of anything.
    fn reads_handed(&mut self, reached: &mut Reached, start: &State) -> bool {
        let mut at = 0;
        while let Some(path) = reached.handed.get(at).cloned() {
            let module = self.project.module_named(&path);
            // Of one that brings in all names of others each would have to be looked for there.
            if at >= MOST_HANDED || module.is_some_and(|m| !self.project.stars(m).is_empty()) {
                return false;
            }
            let trains = self.rules.holds_trainer(&path);
            let mut found = Mentions::default();
            for name in reached.names.iter().filter(|n| !reached.led[at].contains(*n)) {
                let full = format!("{path}.{name}");
                let may = module.is_some_and(|m| self.project.binds(m, name)) || self.project.is_package(&full);
                if may || self.rules.get(&full).is_some() || trains && self.rules.holds_trainer(&full) {
                    let value = self.led(full);
                    self.meet(&value, start, &mut found);
                    if let Val::Path(path) = &value {
                        self.hand_on(path, &mut found);
                    }
                }
            }
            let (names, led) = (&reached.names, &mut reached.led[at]);
            led.extend(names.iter().cloned());
            if !self.absorb(&found, reached) {
                return false;
            }
            at += 1;
        }
        true
    }

    /// Adds what something mentions; whether nothing of that acts.
    fn absorb(&mut self, mentions: &Mentions, reached: &mut Reached) -> bool {
        reached.reduces |= mentions.reduces;
        reached.receives |= mentions.receives;
        reached.strays |= mentions.strays;
        reached.asks |= mentions.asks;
        mentions.funcs.iter().for_each(|f| reached.func(*f));
        reached.names.extend(mentions.names.iter().cloned());
        reached.strings.extend(mentions.strings.iter().cloned());
        for path in &mentions.handed {
            if !reached.handed.contains(path) {
                reached.handed.push(path.clone());
                reached.led.push(FxHashSet::default());
            }
        }
        if reached.asks {
            let strings = std::mem::take(&mut reached.strings);
            let acts = |name: &Name| WRAPS.contains(&name.as_str()) || self.rules.called(name).is_some();
            if strings.iter().any(acts) {
                return false;
            }
            reached.names.extend(strings);
        }
        if mentions.acts || self.tells(reached) {
            return false;
        }
        for class in &mentions.classes {
            // Of a module nothing is executed, but for one that wraps another.
            if self.is_module_class(*class) && self.wraps(*class).is_none() {
                continue;
            }
            if !self.add_class(*class, reached) {
                return false;
            }
            self.method(*class, "__init__").into_iter().for_each(|init| reached.func(init));
        }
        true
    }

    /// Whether what is reached may come together in something that can be told.
    fn tells(&self, reached: &Reached) -> bool {
        let any = |words: &[&str]| words.iter().any(|w| reached.names.contains(*w));
        reached.reduces && (any(GRADIENTS) || any(SUMS) || any(LOSSES) || any(LOSS_CLASSES))
            || reached.receives && any(&["backward"])
            || reached.strays && self.rules.trainers().iter().any(|(_, name)| reached.names.contains(name))
    }

    fn mentions(&mut self, at: FuncRef, start: &State) -> Rc<Mentions> {
        if let Some(known) = self.inert.of.get(&at) {
            return known.clone();
        }
        let view = self.view(at);
        let mut out = Mentions::default();
        for step in 0..view.steps.len() {
            self.step(&view, step, start, &mut out);
            if out.acts {
                break;
            }
        }
        for (_, value) in self.settings.static_defaults(at) {
            match value {
                Value::Path(path) | Value::ReduceOp(path) => {
                    self.meet(&Val::Path(path.clone()), start, &mut out);
                    self.hand_on(&path, &mut out);
                }
                Value::Const(Const::Str(text)) => spell(&text, &mut out),
                _ => {}
            }
        }
        let out = Rc::new(out);
        self.inert.of.insert(at, out.clone());
        out
    }

    fn step(&mut self, view: &Rc<View<'a>>, step: usize, start: &State, out: &mut Mentions) {
        let (at, stmt) = (view.at, view.steps[step].stmt);
        for operand in stmt.operands() {
            match operand {
                Operand::Global(name) => {
                    let value = self.global_value(at, name, start);
                    self.meet(&value, start, out);
                }
                Operand::Const(Const::Str(text)) => spell(text, out),
                _ => {}
            }
        }
        match stmt {
            Stmt::Def { func, .. } => out.funcs.push(FuncRef { module: at.module, func: *func }),
            Stmt::Class { class, .. } => out.classes.push(ClassRef { module: at.module, class: *class }),
            Stmt::Import { dst, .. } => {
                let value = self.imported(view, stmt);
                self.meet(&value, start, out);
                if let (Val::Path(path), true) = (&value, is_shared(view, *dst)) {
                    self.hand_on(path, out);
                }
            }
            Stmt::Assign { dst, value } => self.value(view, *dst, value, start, out),
            Stmt::If { .. } | Stmt::While { .. } | Stmt::Assert { .. } => {}
            other => other.operands().into_iter().for_each(|o| self.hand_operand(view, o, start, out)),
        }
    }

    fn value(&mut self, view: &Rc<View<'a>>, dst: LocalId, value: &'a Rvalue, start: &State, out: &mut Mentions) {
        match value {
            Rvalue::Attr { base, name } => {
                let definite = self.member_named(view, base, name, start, out);
                // What is read of an object or a name may be an object that trains.
                out.acts |= !definite && self.rules.called(name).is_some();
            }
            Rvalue::CallMethod { base, name, args } => {
                self.member_named(view, base, name, start, out);
                args.iter().for_each(|a| self.hand_operand(view, &a.value, start, out));
            }
            Rvalue::Call { callee, args } => self.arguments_of(view, callee, args, start, out),
            Rvalue::Closure { func, .. } => out.funcs.push(FuncRef { module: view.at.module, func: *func }),
            Rvalue::Use(o) | Rvalue::Await(o) if !is_shared(view, dst) => {
                // It is known where it goes; a function that stands for `getattr` is not.
                out.acts |= matches!(o, Operand::Global(name) if name == "getattr");
            }
            Rvalue::Compare { .. } => {}
            other => {
                let all = other.operands();
                all.into_iter().for_each(|o| self.hand_operand(view, o, start, out));
            }
        }
        if view.may_communicate(value) {
            match self.called(view.at, value) {
                Call::Collective => {
                    let gathers = view.collective(value).is_some_and(|call| call.rule.op == "all_gather");
                    out.reduces |= !gathers;
                }
                Call::Receive => out.receives = true,
                Call::Cut | Call::Other => {}
            }
        }
    }

    fn arguments_of(
        &mut self,
        view: &Rc<View<'a>>,
        callee: &Operand,
        args: &'a [Arg],
        start: &State,
        out: &mut Mentions,
    ) {
        let own = match callee {
            Operand::Global(name) => match self.global_value(view.at, name, start) {
                Val::Path(path) => path.strip_prefix("builtins.").map(Name::from),
                _ => None,
            },
            _ => None,
        };
        match (own.as_deref(), args) {
            // Of a parameter it gives the gradient.
            (Some("hasattr"), [_, Arg { value: Operand::Const(Const::Str(name)), .. }, ..]) => self.named(name, out),
            (Some("hasattr"), _) => out.asks = true,
            (Some(name), _) if TESTS.contains(&name) => {}
            (Some("getattr"), [base, Arg { value: Operand::Const(Const::Str(name)), .. }, rest @ ..]) => {
                let definite = self.member_named(view, &base.value, name, start, out);
                out.acts |= !definite && self.rules.called(name).is_some();
                rest.iter().for_each(|a| self.hand_operand(view, &a.value, start, out));
            }
            (name, args) => {
                out.asks |= name == Some("getattr");
                args.iter().for_each(|a| self.hand_operand(view, &a.value, start, out));
            }
        }
    }

    /// A name of something: a member of a path, or an attribute or a method of a value; whether it can only be the former.
    fn member_named(
        &mut self,
        view: &Rc<View<'a>>,
        base: &Operand,
        name: &Name,
        start: &State,
        out: &mut Mentions,
    ) -> bool {
        let (paths, definite) = self.paths(view, base, start, out);
        for path in paths {
            let value = self.led(format!("{path}.{name}"));
            self.meet(&value, start, out);
        }
        if !definite {
            self.named(name, out);
        }
        definite
    }

    fn named(&self, name: &Name, out: &mut Mentions) {
        out.acts |= WRAPS.contains(&name.as_str());
        if !out.names.contains(name) {
            out.names.insert(name.clone());
        }
    }

    /// The paths that an operand may stand for where it is read, and whether it stands for nothing else.
    fn paths(
        &mut self,
        view: &Rc<View<'a>>,
        operand: &Operand,
        start: &State,
        out: &mut Mentions,
    ) -> (SmallVec<[Name; 1]>, bool) {
        let mut way = Way::default();
        let (paths, definite) = self.paths_by(view, operand, start, &mut way, out);
        if way.turns {
            // Its members may be paths too.
            paths.iter().for_each(|path| self.hand_on(path, out));
        }
        (paths, definite && !way.turns)
    }

    fn paths_by(
        &mut self,
        view: &Rc<View<'a>>,
        operand: &Operand,
        start: &State,
        way: &mut Way,
        out: &mut Mentions,
    ) -> (SmallVec<[Name; 1]>, bool) {
        let mut found = SmallVec::new();
        let local = match operand {
            Operand::Global(name) => {
                if let Val::Path(path) = self.global_value(view.at, name, start) {
                    found.push(path);
                }
                let definite = !found.is_empty();
                return (found, definite);
            }
            Operand::Local(local) => *local,
            Operand::Const(_) => return (found, false),
        };
        if way.locals.contains(&local) || way.locals.len() > MAX_EXPR_DEPTH {
            way.turns = true;
            out.acts |= way.locals.len() > MAX_EXPR_DEPTH;
            return (found, false);
        }
        way.locals.push(local);
        let mut definite = !view.is_param(local) && !is_shared(view, local) && !view.defs(local).is_empty();
        for def in view.defs(local) {
            let before = found.len();
            match view.steps[*def].stmt {
                Stmt::Assign { value: Rvalue::Use(o) | Rvalue::Await(o), .. } => {
                    let (paths, only) = self.paths_by(view, o, start, way, out);
                    found.extend(paths);
                    definite &= only;
                }
                Stmt::Assign { value: Rvalue::Attr { base, name }, .. } => {
                    let (paths, only) = self.paths_by(view, base, start, way, out);
                    for path in paths {
                        match self.led(format!("{path}.{name}")) {
                            Val::Path(path) => found.push(path),
                            _ => definite = false,
                        }
                    }
                    definite &= only;
                }
                stmt @ Stmt::Import { .. } => match self.imported(view, stmt) {
                    Val::Path(path) => found.push(path),
                    _ => definite = false,
                },
                _ => definite = false,
            }
            definite &= found.len() > before;
        }
        way.locals.pop();
        (found, definite)
    }

    fn imported(&self, view: &View<'_>, stmt: &Stmt) -> Val {
        let Stmt::Import { path, member, level, .. } = stmt else { return Val::named("import") };
        let base = self.project.absolute(view.at.module, path, *level);
        self.led(member.as_ref().map_or(base.clone(), |m| format!("{base}.{m}")))
    }

    /// What a name of a module is when a function reads it.
    fn global_value(&self, at: FuncRef, name: &Name, start: &State) -> Val {
        let body = start.frames.first().filter(|f| f.at.module == at.module);
        let own = body.and_then(|f| f.locals.get(self.global_local(at.module, f.at, name)?.index()));
        own.cloned().unwrap_or_else(|| self.member(at.module, name))
    }

    /// Something that a function gets hold of.
    fn meet(&self, value: &Val, start: &State, out: &mut Mentions) {
        match value {
            Val::Func(at) => out.funcs.push(*at),
            Val::Class(class) => out.classes.push(*class),
            Val::Path(path) => {
                let name = last(path);
                if path.starts_with("builtins.") {
                    return;
                }
                out.acts |= WRAPS.contains(&name)
                    || matches!(self.rules.get(path), Some(Entry::Intrinsic(rule))
                        if ["trainer", "gradients-"].iter().any(|does| rule.does.starts_with(does))
                            || ["state-object", "reduce-scaled"].contains(&rule.does.as_str()));
                if !out.names.contains(name) {
                    out.names.insert(Name::from(name));
                }
            }
            other => self.hold(other, start, 0, out),
        }
    }

    /// What the module's own statements leave in a value.
    fn hold(&self, value: &Val, start: &State, depth: usize, out: &mut Mentions) {
        if depth > MAX_VALUE_DEPTH {
            out.acts = true;
            return;
        }
        let mut inner = |v: &Val| self.hold(v, start, depth + 1, out);
        match value {
            Val::Tuple(items) | Val::Pack(items) => items.iter().for_each(inner),
            Val::Dict(items) => items.iter().for_each(|(_, v)| inner(v)),
            Val::List(at) => start.lists.get(*at).into_iter().flat_map(|l| &l.items).for_each(inner),
            Val::Rounds(_, item) => inner(item),
            Val::Object(at) => {
                if let Some(object) = start.objects.get(*at) {
                    object.attrs.values().for_each(inner);
                    out.classes.extend(object.class);
                }
            }
            Val::Const(Const::Str(text)) => spell(text, out),
            Val::Method(_, at) | Val::Func(at) => out.funcs.push(*at),
            Val::Class(class) => out.classes.push(*class),
            Val::Path(path) => {
                self.meet(value, start, out);
                if depth > 0 {
                    self.hand_on(path, out);
                }
            }
            Val::Tensor(_)
            | Val::Grad(_)
            | Val::Param(_)
            | Val::Received(_)
            | Val::Trainer(_)
            | Val::Accumulating(_)
            | Val::LossFunction(_) => out.acts = true,
            _ => {}
        }
    }

    fn hand_operand(&mut self, view: &Rc<View<'a>>, operand: &Operand, start: &State, out: &mut Mentions) {
        if matches!(operand, Operand::Global(name) if name == "getattr") {
            out.acts = true;
        }
        let (paths, _) = self.paths(view, operand, start, out);
        paths.iter().for_each(|path| self.hand_on(path, out));
    }

    /// A path goes where it is not followed: from one of the project anything may be read there that has a name which is read.
    fn hand_on(&self, path: &Name, out: &mut Mentions) {
        if self.project.is_package(path) {
            if !out.handed.contains(path) {
                out.handed.push(path.clone());
            }
        } else {
            out.strays |= self.rules.holds_trainer(path);
        }
    }
}

/// The variables between an operand and what it may stand for.
#[derive(Default)]
struct Way {
    locals: SmallVec<[LocalId; 8]>,
    /// One of them is made from itself.
    turns: bool,
}

/// A string that may be the name of an attribute.
fn spell(text: &Name, out: &mut Mentions) {
    let name = text.len() < 64 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || !b.is_ascii());
    if name && !text.is_empty() && !out.strings.contains(text) {
        out.strings.insert(text.clone());
    }
}

/// Whether functions inside a function, or around it, see a variable too.
fn is_shared(view: &View<'_>, local: LocalId) -> bool {
    matches!(view.func.locals()[local].kind, LocalKind::Cell | LocalKind::Captured)
}
