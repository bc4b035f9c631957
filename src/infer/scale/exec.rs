//! Execution of statements on paths. In: blocks and states. Out: the states after them. Never: an iteration to a fixpoint: a loop runs
//! once, and what adds up in it is multiplied with its rounds. Next: `eval.rs`, `calls.rs`.

use super::super::autograd::UNNAMED;
use super::super::shared::Shared;
use super::placeholder::holds_place;
use super::slots::Slots;
use super::value::{ClassId, Flow, Frame, List, Num, State, Tensor, Test, Val};
use super::{MOST_STATES, Run, round};
use crate::ir::{Block, Const, LocalId, LocalKind, Node, Operand, Stmt, StmtId};
use crate::project::FuncRef;
use crate::source::{Idx, Name, Place};
use crate::types::Scale;

impl<'a> Run<'a> {
    /// The statements of a block, one after another, on every path.
    pub fn block(&mut self, block: &'a Block, states: Vec<State>) -> Vec<State> {
        let (mut live, mut done) = (states, Vec::new());
        for node in block {
            // Most statements leave one path as one: it stays where it is.
            if let [state] = live.as_mut_slice()
                && self.stays_one(node, state)
            {
                if state.flow != Flow::Next {
                    done.append(&mut live);
                    break;
                }
                continue;
            }
            let forks = matches!(node.stmt, Stmt::If { .. } | Stmt::For { .. } | Stmt::While { .. } | Stmt::Try { .. });
            let mut next = Vec::new();
            for state in live {
                for after in self.node(node, state) {
                    if after.flow == Flow::Next { next.push(after) } else { done.push(after) }
                }
            }
            round::compare(&mut next);
            live = if next.len() > 1 && (forks || next.len() > MOST_STATES) { self.merged(next) } else { next };
            if live.is_empty() {
                break;
            }
        }
        done.extend(live);
        if done.len() > MOST_STATES {
            // Those that fail go nowhere.
            done.retain(|s| s.flow != Flow::Raise);
            done = self.merged(done);
        }
        done
    }

    /// Paths between which nothing differs are one.
    fn merged(&self, states: Vec<State>) -> Vec<State> {
        let mut out: Vec<State> = Vec::new();
        for state in states {
            match out.iter().position(|o| alike(o, &state) && self.frames_alike(o, &state)) {
                Some(at) => out[at].stands_for(&state),
                None if out.len() >= MOST_STATES => self.give_up(&mut out, &state),
                None => out.push(state),
            }
        }
        out
    }

    /// Whether variables are alike; a temporary that only one path has is not used any more.
    fn frames_alike(&self, a: &State, b: &State) -> bool {
        let same = |x: &Frame, y: &Frame| {
            let func = self.project.func(x.at);
            let temporary = |l| func.locals()[LocalId::from_index(l)].kind == LocalKind::Temp;
            x.at == y.at && x.locals.alike(&y.locals, temporary)
        };
        a.frames.is(&b.frames)
            || a.frames.len() == b.frames.len()
                && a.frames.iter().zip(b.frames.iter()).all(|(x, y)| x.is(y) || same(x, y))
    }

    fn node(&mut self, node: &'a Node, mut state: State) -> Vec<State> {
        self.steps += 1;
        if self.steps > self.most_steps {
            return Vec::new();
        }
        match &node.stmt {
            Stmt::Assign { dst, value } => self
                .eval(node.id, value, state)
                .into_iter()
                .map(|(mut s, v)| {
                    self.bind_to(node.id, *dst, v, &mut s);
                    s
                })
                .collect(),
            Stmt::SetAttr { base, name, value } => self.set_attr(base, name, value, state),
            Stmt::If { test, then, orelse } => self.branch(test, then, orelse, state),
            Stmt::For { dst, iter, body, orelse } => self.for_loop(node.id, *dst, iter, (body, orelse), state),
            Stmt::While { head, body, .. } => {
                let states = self.block(head, vec![state]);
                self.rounds(node.id, Scale::Unknown, states, |run, s| run.block(body, s))
            }
            Stmt::With { bind, body, context } => {
                if let Some(bind) = bind {
                    let value = self.operand(context, &state);
                    state.set(*bind, value);
                }
                let Val::Accumulating(at) = self.operand(context, &state) else { return self.block(body, vec![state]) };
                state.accumulate(at, true);
                let mut after = self.block(body, vec![state]);
                after.iter_mut().for_each(|s| s.accumulate(at, false));
                after
            }
            Stmt::Try { body, orelse, finally, .. } => {
                let states = self.block(body, vec![state]);
                self.then(states, orelse, finally)
            }
            Stmt::Assert { test } => {
                let test = self.truth(&self.operand(test, &state));
                let fresh: Vec<Name> =
                    test.every().into_iter().filter(|name| !state.facts.contains_key(name)).collect();
                let known = state.facts.clone();
                let mut held: Vec<State> =
                    self.decide(&test, state).into_iter().filter(|(_, b)| *b).map(|(s, _)| s).collect();
                // What is asserted holds in every round.
                fresh.iter().for_each(|name| round::forget(name, &mut held));
                // That a group was made is no choice of the configuration: nothing goes on where it was not.
                for state in &mut held {
                    state.facts.retain(|name, _| known.contains_key(name) || !name.ends_with(" is None"));
                }
                held
            }
            _ => {
                self.simple(node, &mut state);
                vec![state]
            }
        }
    }

    /// A statement that leaves the path as one, if it is known to be such before it runs; whether it was executed.
    fn stays_one(&mut self, node: &'a Node, state: &mut State) -> bool {
        if self.steps >= self.most_steps {
            return false;
        }
        match &node.stmt {
            Stmt::Assign { dst, value } => {
                let Ok(value) = self.plainly(node.id, value, state) else { return false };
                self.bind_to(node.id, *dst, value, state);
            }
            Stmt::SetAttr { .. }
            | Stmt::If { .. }
            | Stmt::For { .. }
            | Stmt::While { .. }
            | Stmt::With { .. }
            | Stmt::Try { .. }
            | Stmt::Assert { .. } => return false,
            _ => self.simple(node, state),
        }
        self.steps += 1;
        true
    }

    /// A variable is given a value.
    fn bind_to(&mut self, id: StmtId, dst: LocalId, value: Val, state: &mut State) {
        let new = self.christened(state, dst, &value);
        if let Some(new) = &new {
            state.name_group(&value, new);
        }
        let value = new.unwrap_or(value);
        self.note(id, state, dst, &value);
        state.set(dst, value);
    }

    /// A statement that makes no second path and executes nothing.
    fn simple(&mut self, node: &'a Node, state: &mut State) {
        match &node.stmt {
            Stmt::SetItem { base, index, value } => self.set_item(base, index, value, state),
            Stmt::Unpack { value, before, star, after } => self.unpack(value, before, star.as_ref(), after, state),
            Stmt::Return { value } => {
                state.returned = Some(self.place(state, node.id));
                state.flow = Flow::Return(Box::new(self.operand(value, state)));
            }
            Stmt::Raise => state.flow = Flow::Raise,
            Stmt::Break | Stmt::Continue => state.flow = Flow::Leave,
            other => self.define(other, state),
        }
    }

    fn then(&mut self, states: Vec<State>, orelse: &'a Block, finally: &'a Block) -> Vec<State> {
        let (next, mut done): (Vec<State>, Vec<State>) = states.into_iter().partition(|s| s.flow == Flow::Next);
        let next = if next.is_empty() { next } else { self.block(orelse, next) };
        let (next, other): (Vec<State>, Vec<State>) = next.into_iter().partition(|s| s.flow == Flow::Next);
        done.extend(other);
        if !next.is_empty() {
            done.extend(self.block(finally, next));
        }
        done
    }

    fn define(&mut self, stmt: &'a Stmt, state: &mut State) {
        let Some(at) = state.frames.last().map(|f| f.at) else { return };
        match stmt {
            Stmt::Def { dst, func, .. } => {
                state.set(*dst, Val::Func(FuncRef { module: at.module, func: *func }));
            }
            Stmt::Class { dst, class, .. } => {
                state.set(*dst, Val::Class(crate::project::ClassRef { module: at.module, class: *class }));
            }
            Stmt::Import { dst, path, member, level, .. } => {
                let base = self.project.absolute(at.module, path, *level);
                let full = member.as_ref().map_or(base.clone(), |m| format!("{base}.{m}"));
                let value = self.resolved(&self.project.path(&full));
                state.set(*dst, value);
            }
            Stmt::Append { collection, key: None, value } => {
                let value = self.operand(value, state);
                if let Some(Val::List(id)) = state.get(*collection).cloned()
                    && let Some(list) = state.lists.get_mut(id)
                {
                    append(list, value);
                }
            }
            Stmt::Delete { local } => {
                if let Some(frame) = state.frames.last_mut() {
                    frame.locals.remove(local.index());
                }
            }
            _ => {}
        }
    }

    /// A group that is made here goes by the name that it is given.
    fn christened(&self, state: &State, dst: LocalId, value: &Val) -> Option<Val> {
        if !matches!(value, Val::Group(_) | Val::Named(_)) {
            return None;
        }
        let frame = state.frames.last()?;
        let local = &self.project.func(frame.at).locals()[dst];
        if local.kind == LocalKind::Temp {
            return None;
        }
        renamed(&local.name, value)
    }

    fn unpack(
        &mut self,
        value: &Operand,
        before: &[LocalId],
        star: Option<&LocalId>,
        after: &[LocalId],
        state: &mut State,
    ) {
        let whole = self.operand(value, state);
        let of_list = matches!(whole, Val::List(_));
        // `optimizer, scheduler = build(model)`
        let of_maker = whole == Val::Optimizer;
        let items: Option<Vec<Val>> = match whole {
            Val::Tuple(items) | Val::Pack(items) if items.len() == before.len() && star.is_none() => Some(items),
            Val::List(id) if star.is_none() => state
                .lists
                .get(id)
                .filter(|l| l.length.is_none() && l.items.len() == before.len())
                .map(|l| l.items.clone()),
            _ => None,
        };
        let Some(at) = state.frames.last().map(|f| f.at) else { return };
        for (i, local) in before.iter().chain(star).chain(after).enumerate() {
            let name = self.project.func(at).locals()[*local].name.clone();
            let one = items.as_ref().and_then(|v| v.get(i)).filter(|v| !(of_list && holds_place(v)));
            let is_made = of_maker && name.contains("opt");
            let one = one.cloned().unwrap_or(if is_made { Val::Optimizer } else { Val::Named(name) });
            let one = self.christened(state, *local, &one).unwrap_or(one);
            state.set(*local, one);
        }
    }

    fn branch(&mut self, test: &Operand, then: &'a Block, orelse: &'a Block, state: State) -> Vec<State> {
        let test = self.truth(&self.operand(test, &state));
        let mut out = Vec::new();
        let guards = if orelse.is_empty() || then.is_empty() { test.every() } else { Vec::new() };
        for (mut state, holds) in self.decide(&test, state) {
            state.guard(&guards);
            test.sums_up(holds, &mut state);
            let after = self.block(if holds { then } else { orelse }, vec![state]);
            out.extend(after.into_iter().map(|mut s| {
                s.unguard(&guards);
                s
            }));
        }
        round::pass(&test, &mut out);
        out
    }

    /// A condition on each path; what it does not know makes two of it.
    pub fn decide(&mut self, test: &Test, state: State) -> Vec<(State, bool)> {
        match test {
            Test::Known(b) => vec![(state, *b)],
            Test::Not(inner) => self.decide(inner, state).into_iter().map(|(s, b)| (s, !b)).collect(),
            Test::And(items) | Test::Or(items) => {
                let until = matches!(test, Test::Or(_));
                let mut open = vec![state];
                let mut out = Vec::new();
                for item in items {
                    for s in std::mem::take(&mut open) {
                        for (s, b) in self.decide(item, s) {
                            if b == until { out.push((s, b)) } else { open.push(s) }
                        }
                    }
                }
                out.extend(open.into_iter().map(|s| (s, !until)));
                out
            }
            Test::Flag(name) | Test::Every(name, _) => {
                let holds = |mut state: State| {
                    if let Test::Every(_, rounds) = test {
                        state.holds_in_round(name, rounds);
                    }
                    state
                };
                match state.facts.get(name).copied() {
                    Some(true) => vec![(holds(state), true)],
                    Some(false) => vec![(state, false)],
                    None => {
                        let (mut yes, mut no) = (holds(state.clone()), state);
                        yes.facts.insert(name.clone(), true);
                        no.facts.insert(name.clone(), false);
                        vec![(yes, true), (no, false)]
                    }
                }
            }
            Test::Param(name) => self.decide_param(name, state),
        }
    }

    fn decide_param(&mut self, name: &Name, state: State) -> Vec<(State, bool)> {
        let Some(class) = state.param else { return self.decide(&Test::Flag(name.clone()), state) };
        let Some(known) = state.classes.get(class) else { return vec![(state, true)] };
        if let Some(b) = known.facts.get(name) {
            let b = *b;
            return vec![(state, b)];
        }
        let (mut yes, mut no) = (state.clone(), state);
        for (s, b) in [(&mut yes, true), (&mut no, false)] {
            if let Some(c) = s.classes.get_mut(class) {
                c.facts.insert(name.clone(), b);
            }
        }
        vec![(yes, true), (no, false)]
    }

    /// A loop: over parameters once for each class of them, over a short list once for each item, otherwise once.
    fn for_loop(
        &mut self,
        id: StmtId,
        dst: LocalId,
        iter: &Operand,
        (body, orelse): (&'a Block, &'a Block),
        mut state: State,
    ) -> Vec<State> {
        let iter = self.operand(iter, &state);
        let plan = self.elements(&iter, &mut state);
        let states = match plan {
            Elements::Classes(classes, named) => {
                let mut states = vec![state];
                for class in classes {
                    states = states.into_iter().flat_map(|s| self.of_class(class, named, dst, body, s)).collect();
                    states.truncate(MOST_STATES);
                }
                states
            }
            Elements::Each(items) => {
                let mut states = vec![state];
                for item in items {
                    states.iter_mut().for_each(|s| s.set(dst, item.clone()));
                    states = settled(self.block(body, states));
                }
                states
            }
            Elements::Rounds(scale, item) => {
                let item = match (&*item, state.frames.last().map(|f| f.at)) {
                    (Val::Named(text), Some(at))
                        if !text.contains('.') && self.project.func(at).locals()[dst].kind != LocalKind::Temp =>
                    {
                        Val::Named(self.project.func(at).locals()[dst].name.clone())
                    }
                    _ => *item,
                };
                state.set(dst, item);
                self.rounds(id, scale, vec![state], |run, s| run.block(body, s))
            }
        };
        let (next, mut done): (Vec<State>, Vec<State>) = states.into_iter().partition(|s| s.flow == Flow::Next);
        if !next.is_empty() {
            done.extend(if orelse.is_empty() { self.merged(next) } else { self.block(orelse, next) });
        }
        done
    }

    /// The body of a loop over parameters, for one class: what it asks of the parameter makes two classes of it.
    fn of_class(&mut self, class: ClassId, named: bool, dst: LocalId, body: &'a Block, state: State) -> Vec<State> {
        let mut states = vec![state];
        for leaf in states[0].leaves(class) {
            let mut out: Vec<State> = Vec::new();
            for mut s in states {
                // On another path it is two classes already.
                if s.classes.get(leaf).is_some_and(|c| c.split.is_some()) {
                    out.extend(self.of_class(leaf, named, dst, body, s));
                    continue;
                }
                let before = s.clone();
                s.param = Some(leaf);
                let param = Val::Param(leaf);
                s.set(dst, if named { Val::Tuple(vec![Val::ParamName, param]) } else { param });
                let mut groups: Vec<Vec<State>> = Vec::new();
                for mut after in settled(self.block(body, vec![s])) {
                    after.param = before.param;
                    match groups.iter_mut().find(|g| g[0].facts == after.facts && g[0].flow == after.flow) {
                        Some(group) => group.push(after),
                        None => groups.push(vec![after]),
                    }
                }
                out.extend(groups.into_iter().map(|g| together(leaf, &before, g)));
            }
            out.truncate(MOST_STATES);
            states = out;
        }
        states
    }

    /// A body that runs so often: what it adds up is multiplied.
    pub fn rounds(
        &mut self,
        id: StmtId,
        scale: Scale,
        states: Vec<State>,
        body: impl FnOnce(&mut Run<'a>, Vec<State>) -> Vec<State>,
    ) -> Vec<State> {
        let Some(first) = states.first().cloned() else { return states };
        let key = id.index() + 100_000 * first.frames.len();
        let mut states = states;
        let parts = scale.known().is_some_and(|m| !m.is_number());
        for s in &mut states {
            s.loops.push((key, scale.clone()));
            s.enter_round();
            if parts {
                s.count_whole(key);
            }
        }
        let after = settled(body(self, states));
        let mut out = Vec::new();
        for mut s in after {
            s.loops.retain(|(k, _)| *k != key);
            s.leave_round(&first.round);
            multiply_sums(&first, &mut s, &scale);
            if parts {
                s.count_parts(key, &scale);
            }
            out.push(s);
        }
        self.merged(out)
    }

    /// The place of a statement of the function under execution.
    pub fn place(&self, state: &State, id: StmtId) -> Place {
        match state.frames.last() {
            Some(frame) => {
                let func = self.project.func(frame.at);
                Place { file: self.project.file(frame.at.module), span: func.spans().of(id) }
            }
            None => Place { file: crate::source::FileId::from_index(0), span: crate::source::Span::default() },
        }
    }

    /// Calls a function of the project with arguments by parameter.
    pub fn run(&mut self, at: FuncRef, args: Slots, call: Option<Place>, mut state: State) -> Vec<(State, Val)> {
        let depth = state.frames.iter().filter(|f| f.at == at).count();
        if state.frames.len() > super::MOST_CALLS || depth > 0 {
            return vec![(state, Val::named("call"))];
        }
        let func = self.project.func(at);
        let mut locals = args;
        for (outer, inner) in &func.captures {
            let around = |f: &&Shared<Frame>| Some(f.at.func) == func.parent && f.at.module == at.module;
            let parent = state.frames.iter().rev().find(around).or_else(|| state.left.iter().rev().find(around));
            if let Some(value) = parent.and_then(|f| f.locals.get(outer.index())) {
                locals.insert(inner.index(), value.clone());
            }
        }
        let depth = state.frames.len();
        state.frames.push(Shared::new(Frame { at, locals, call }));
        let mut out = Vec::new();
        for mut s in self.block(func.body(), vec![state]) {
            let value = match std::mem::replace(&mut s.flow, Flow::Next) {
                Flow::Return(value) => *value,
                Flow::Next | Flow::Leave => Val::Const(Const::None),
                Flow::Raise => continue,
            };
            if depth > 1 {
                s.returned = None;
            }
            let inner = s.frames.pop();
            s.frames.truncate(depth);
            if let Some(frame) = inner.as_ref().filter(|_| self.gives_inner(at, &value)) {
                s.left.push(frame.clone());
            }
            let parent = s.frames.iter_mut().rev().find(|f| Some(f.at.func) == func.parent && f.at.module == at.module);
            if let (Some(inner), Some(parent)) = (inner, parent) {
                for (outer, own) in &func.captures {
                    if let Some(value) = inner.locals.get(own.index()) {
                        parent.locals.insert(outer.index(), value.clone());
                    }
                }
            }
            out.push((s, value));
        }
        out
    }
}

impl Run<'_> {
    /// Whether a function hands out one that is defined in it, which sees its variables afterwards.
    fn gives_inner(&self, at: FuncRef, value: &Val) -> bool {
        match value {
            Val::Func(inner) => inner.module == at.module && self.project.func(*inner).parent == Some(at.func),
            Val::Tuple(items) => items.iter().any(|v| self.gives_inner(at, v)),
            Val::Dict(items) => items.iter().any(|(_, v)| self.gives_inner(at, v)),
            _ => false,
        }
    }
}

/// Whether a group is known by nothing but the call that gives it.
fn is_nameless(axis: &crate::types::Axis) -> bool {
    axis.is_variable() && (axis.name().contains('(') || axis.name() == UNNAMED)
}

/// A value under the name that it is given, where that says more.
fn renamed(name: &str, value: &Val) -> Option<Val> {
    match value {
        // A group that has a name keeps it: other values are of the same group.
        Val::Group(axes) if axes.single().is_some_and(is_nameless) => Some(match super::groups::of_group_name(name) {
            Some(axes) => Val::Group(axes),
            None => Val::Group(crate::types::AxisSet::one(crate::types::Axis::variable(name))),
        }),
        Val::Named(_) => {
            let group = || super::groups::of_size_name(name).is_some() || super::groups::of_group_name(name).is_some();
            let counted = || super::eval::is_batch_name(name) || super::eval::is_mask_name(name);
            (group() || counted()).then(|| Val::named(name))
        }
        _ => None,
    }
}

/// What a loop runs over.
pub enum Elements {
    /// Classes of parameters; whether with their names.
    Classes(Vec<ClassId>, bool),
    Each(Vec<Val>),
    Rounds(Scale, Box<Val>),
}

pub fn append(list: &mut List, value: Val) {
    match value {
        Val::Grad(_) | Val::Param(_) => list.items.push(value),
        other => {
            if list.items.last() != Some(&other) {
                list.items.push(other);
            }
        }
    }
}

/// Leaving a round is going on after it.
fn settled(mut states: Vec<State>) -> Vec<State> {
    for s in &mut states {
        if s.flow == Flow::Leave {
            s.flow = Flow::Next;
        }
    }
    states
}

/// Whether two paths are alike but for what they have decided.
fn alike(a: &State, b: &State) -> bool {
    alike_but_lists(a, b) && a.lists == b.lists
}

/// The same, whatever lists hold.
pub fn alike_but_lists(a: &State, b: &State) -> bool {
    a.flow == b.flow
        && a.classes == b.classes
        && a.terms == b.terms
        && a.modules == b.modules
        && a.trainers == b.trainers
        && a.objects == b.objects
        && a.param == b.param
        && a.aliases == b.aliases
        && a.world == b.world
        && a.dims == b.dims
        && a.round == b.round
}

/// What the paths through a round for one class leave behind, as one state: each path is a class of its own.
fn together(leaf: ClassId, before: &State, mut group: Vec<State>) -> State {
    let mut first = group.remove(0);
    for other in group {
        let Some(mut own) = other.classes.get(leaf).cloned() else { continue };
        if own.split.take().is_some() {
            // The body has made two of it: what each of them has is known on that path alone.
            own.after = Scale::Unknown;
        }
        let mut at = leaf;
        while let Some((_, rest)) = first.classes.get(at).and_then(|c| c.split) {
            at = rest;
        }
        let Some(kept) = first.classes.get(at).cloned() else { continue };
        if kept.after == own.after && kept.over == own.over && kept.always == own.always && lists_alike(&first, &other)
        {
            // The round treats both alike.
            if let Some(c) = first.classes.get_mut(at) {
                c.facts.retain(|k, v| own.facts.get(k) == Some(v));
            }
            continue;
        }
        let (yes, no) = (first.classes.len(), first.classes.len() + 1);
        first.classes.push(kept);
        first.classes.push(own);
        if let Some(c) = first.classes.get_mut(at) {
            c.split = Some((yes, no));
        }
        for (i, list) in other.lists.iter().enumerate() {
            let old = before.lists.get(i).map_or(0, |l| l.items.len());
            let Some(into) = first.lists.get_mut(i) else { continue };
            // Only what speaks of parameters means the same on both paths.
            for item in list.items.iter().skip(old).filter(|v| of_parameters(v)) {
                into.items.push(moved(item, leaf, no));
            }
        }
        rename_new(&mut first, before, at, yes);
    }
    first
}

fn lists_alike(a: &State, b: &State) -> bool {
    a.lists == b.lists
}

fn of_parameters(item: &Val) -> bool {
    match item {
        Val::Param(_) | Val::Grad(_) => true,
        Val::Tuple(items) => items.iter().all(|v| matches!(v, Val::ParamName | Val::Param(_) | Val::Grad(_))),
        _ => false,
    }
}

/// An item that speaks of one class, of another one.
fn moved(item: &Val, from: ClassId, to: ClassId) -> Val {
    let mut item = item.clone();
    match &mut item {
        Val::Param(c) if *c == from => *c = to,
        Val::Grad(g) => g.of.iter_mut().filter(|c| **c == from).for_each(|c| *c = to),
        Val::Tuple(items) => {
            for v in items.iter_mut() {
                *v = moved(v, from, to);
            }
        }
        _ => {}
    }
    item
}

/// Items that this round has added speak of the class that took its way.
fn rename_new(state: &mut State, before: &State, leaf: ClassId, to: ClassId) {
    for (i, list) in state.lists.iter_mut().enumerate() {
        let old = before.lists.get(i).map_or(0, |l| l.items.len());
        for item in list.items.iter_mut().skip(old) {
            if matches!(item, Val::Param(c) if *c == leaf) || matches!(item, Val::Grad(_)) {
                *item = moved(item, leaf, to);
            }
        }
    }
}

/// Values that were zero before a loop and are sums after it: so many of them.
fn multiply_sums(before: &State, after: &mut State, scale: &Scale) {
    let mut zeros: Vec<u32> = Vec::new();
    before.numbered(&mut |v| {
        if let Val::Num(Num { id, added: true, .. }) | Val::Tensor(Tensor { id, added: true, .. }) = v {
            zeros.push(*id);
        }
    });
    after.change(&|v| match v {
        Val::Num(n) if n.added && !zeros.contains(&n.id) => {
            Some(Val::Num(Num { scale: n.scale.times(scale), ..n.clone() }))
        }
        Val::Tensor(t) if t.added && !zeros.contains(&t.id) => Some(Val::Tensor(t.times(scale))),
        _ => None,
    });
    for (i, list) in after.lists.iter_mut().enumerate() {
        let old = before.lists.get(i).map_or(0, |l| l.items.len());
        let many = list.items.iter().skip(old).any(|v| !matches!(v, Val::Param(_) | Val::Grad(_)));
        if many && list.items.len() == old + 1 && old == 0 {
            list.length = Some(list.length.clone().map_or(scale.clone(), |l| l.times(scale)));
        } else if many {
            list.length = Some(Scale::Unknown);
        }
    }
}
