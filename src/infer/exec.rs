//! Execution of blocks and statements in worlds. In: a block and the current world. Out: the worlds that leave it, and how.
//! Never: typing of operations (`ops.rs`, `collective.rs`) or resolution of calls (`call.rs`). Source: DESIGN.md section 5.
//! Next: `expr.rs`.

use super::expr::differing;
use super::formula::{Atom, Formula, Outcome};
use super::join::{Agree, Joiner, agreeing, unlike_cells};
use super::limits::{MAX_LOOP_ROUNDS, MAX_UNROLLED, MAX_WORLDS};
use super::machine::{Eval, Machine};
use super::output::Reason;
use super::value::Value;
use super::world::{Flow, Path, World};
use crate::ir::{Block, ClaimTarget, Const, Func, LocalKind, Node, Operand, Rvalue, Stmt, StmtId};
use crate::source::Name;
use crate::types::AxisSet;

/// What a statement leaves.
enum Step {
    /// The current world goes on.
    Here,
    Paths(Vec<Path>),
}

/// How two sides of a branch come together again.
#[derive(Clone, Debug)]
enum Meeting {
    /// They stay apart, each with its fact, unless nothing distinguishes them.
    Worlds,
    /// They are joined: nothing tells which was taken.
    Join,
    /// They are joined: each rank of these axes takes one of them.
    Ranks(AxisSet),
}

impl Machine<'_> {
    /// Executes a block from the current world; the current world is unspecified afterwards.
    pub fn block(&mut self, block: &Block) -> Vec<Path> {
        let mut done: Vec<Path> = Vec::new();
        // Worlds that go on; a single one stays the current world.
        let mut live: Vec<World> = Vec::new();
        let mut single = true;
        for node in block {
            let (mut next, before) = (Vec::new(), live.len());
            if single {
                if self.step(node, &mut next, &mut done) {
                    continue;
                }
            } else {
                for world in live {
                    self.w = world;
                    if self.step(node, &mut next, &mut done) {
                        next.push(std::mem::take(&mut self.w));
                    }
                }
            }
            // A temporary makes no worlds alike that were not so before.
            let settled = next.len() == before && is_temporary(node, self.func());
            live = if settled { next } else { self.limit(next, Some(node.id)) };
            single = live.len() == 1;
            if live.is_empty() {
                break;
            }
            if single && let Some(world) = live.pop() {
                self.w = world;
            }
        }
        if single {
            live.push(std::mem::take(&mut self.w));
        }
        done.extend(live.into_iter().map(|world| Path { world, flow: Flow::Next }));
        done
    }

    /// One statement. Whether it goes on in the current world; else worlds that go on are pushed to `next`, the others to `done`.
    fn step(&mut self, node: &Node, next: &mut Vec<World>, done: &mut Vec<Path>) -> bool {
        if !self.budget.step() || self.is_done_scouting() {
            self.lose(Reason::Budget, "steps");
            self.gap("too many steps");
            done.push(Path { world: std::mem::take(&mut self.w), flow: Flow::Raise });
            return false;
        }
        let changed_before = self.changed.len();
        let mut paths = match self.statement(node) {
            Step::Here => {
                self.after(node, changed_before);
                return true;
            }
            Step::Paths(paths) => paths,
        };
        if !matches!(
            node.stmt,
            Stmt::If { .. } | Stmt::For { .. } | Stmt::While { .. } | Stmt::With { .. } | Stmt::Try { .. }
        ) {
            for path in &mut paths {
                std::mem::swap(&mut self.w, &mut path.world);
                self.after(node, changed_before);
                std::mem::swap(&mut self.w, &mut path.world);
            }
        }
        for path in paths {
            match path.flow {
                Flow::Next => next.push(path.world),
                Flow::Return(_) | Flow::Break | Flow::Continue | Flow::Raise => done.push(path),
            }
        }
        false
    }

    /// After a simple statement: the claims of its line, and the types that the line changed.
    fn after(&mut self, node: &Node, changed_before: usize) {
        self.claims_after(node.id);
        if self.changed.len() > changed_before {
            let ids: Vec<_> = self.changed[changed_before..].to_vec();
            self.record_changed(node.id, &ids);
        }
    }

    /// Merges worlds that do not differ, and above the cap those that differ least.
    /// `after`: the statement that led to them; what no later one reads tells no two of them apart.
    pub fn limit(&mut self, worlds: Vec<World>, after: Option<StmtId>) -> Vec<World> {
        if worlds.len() < 2 {
            return worlds;
        }
        let liveness = after.and_then(|after| Some((self.liveness()?, after)));
        let live = |local| liveness.as_ref().is_none_or(|(all, after)| all.is_live(local, *after));
        let mut kept: Vec<World> = Vec::new();
        for world in worlds {
            let twin = kept
                .iter()
                .enumerate()
                .find_map(|(at, k)| agreeing(k, &world, Agree::Decisive, &live).map(|found| (at, found)));
            match twin {
                Some((at, found)) => {
                    let twin = std::mem::take(&mut kept[at]);
                    kept[at] = Joiner::new(&mut self.next_id, None).differing_worlds(twin, &world, found);
                }
                None => kept.push(world),
            }
        }
        while kept.len() > self.budget.worlds() {
            self.lose(Reason::Budget, "worlds");
            let alike = |at: usize, last: usize, on| agreeing(&kept[at], &kept[last], on, &live).is_some();
            let (at, last) = nearest(kept.len(), alike);
            let last = kept.remove(last);
            let other = std::mem::take(&mut kept[at]);
            kept[at] = Joiner::forced(&mut self.next_id).worlds(other, &last);
        }
        kept
    }

    fn statement(&mut self, node: &Node) -> Step {
        self.note_statement(node.id);
        match &node.stmt {
            Stmt::Assign { dst, value } => {
                let eval = self.rvalue_for(node.id, *dst, value);
                self.bind_eval(eval, |m, v| m.assign_named(node.id, *dst, v))
            }
            Stmt::If { test, then, orelse } => Step::Paths(self.branch(node.id, test, then, orelse)),
            Stmt::For { dst, iter, body, orelse } => {
                let iterated = self.operand(iter);
                Step::Paths(self.for_loop(node.id, *dst, &iterated, body, orelse))
            }
            Stmt::While { head, test, body, orelse } => Step::Paths(self.while_loop(node.id, head, test, body, orelse)),
            Stmt::With { context, bind, body } => {
                let context = self.operand(context);
                Step::Paths(self.with(node.id, &context, *bind, body))
            }
            Stmt::Try { body, handlers, orelse, finally } => {
                Step::Paths(self.try_block(body, handlers, orelse, finally))
            }
            Stmt::Assert { test } => {
                let test = self.operand(test);
                self.assume(&test)
            }
            Stmt::Return { value } => {
                let value = self.operand(value);
                self.returned(node.id, &value);
                Step::Paths(self.leave(Flow::Return(value)))
            }
            Stmt::Raise => Step::Paths(self.leave(Flow::Raise)),
            Stmt::Break => Step::Paths(self.leave(Flow::Break)),
            Stmt::Continue => Step::Paths(self.leave(Flow::Continue)),
            Stmt::SetGlobal { name, value } => {
                let value = self.operand(value);
                self.set_global(name, value);
                Step::Here
            }
            Stmt::SetAttr { base, name, value } => {
                let (base, value) = (self.operand(base), self.operand(value));
                let eval = self.store_attr(node.id, &base, name, value);
                self.bind_eval(eval, |_, _| {})
            }
            Stmt::SetItem { base, index, value } => {
                let (base, index, value) = (self.operand(base), self.operand(index), self.operand(value));
                self.set_item(node.id, &base, &index, value);
                Step::Here
            }
            Stmt::Unpack { value, before, star, after } => {
                let value = self.operand(value);
                self.unpack_named(node.id, &value, before, *star, after);
                Step::Here
            }
            Stmt::Def { dst, func, defaults, decorators } => {
                let value = self.define(node.id, *func, defaults, decorators);
                self.assign(node.id, *dst, value);
                Step::Here
            }
            Stmt::Class { dst, class, bases, keywords: _, decorators } => {
                let value = self.define_class(*class, bases, decorators);
                self.assign(node.id, *dst, value);
                Step::Here
            }
            Stmt::Import { dst, path, member, level, loads: _ } => {
                let value = self.import(path, member.as_ref(), *level);
                self.assign(node.id, *dst, value);
                Step::Here
            }
            Stmt::ImportStar { .. } => Step::Here,
            Stmt::Append { collection, key, value } => {
                let (key, value) = (key.as_ref().map(|k| self.operand(k)), self.operand(value));
                let collection = self.local(*collection);
                self.append(&collection, key, value);
                Step::Here
            }
            Stmt::Delete { local } => {
                self.set_local(*local, Value::Unset);
                Step::Here
            }
        }
    }

    fn leave(&mut self, flow: Flow) -> Vec<Path> {
        vec![Path { world: std::mem::take(&mut self.w), flow }]
    }

    /// Continues with the value of an evaluation in each of its worlds.
    fn bind_eval(&mut self, eval: Eval, mut then: impl FnMut(&mut Self, Value)) -> Step {
        match eval {
            Eval::One(value) => {
                then(self, value);
                Step::Here
            }
            Eval::Many(outcomes) => Step::Paths(
                outcomes
                    .into_iter()
                    .map(|(world, value)| {
                        self.w = world;
                        then(self, value);
                        Path { world: std::mem::take(&mut self.w), flow: Flow::Next }
                    })
                    .collect(),
            ),
        }
    }

    /// An assertion: worlds in which it is false end here.
    fn assume(&mut self, test: &Value) -> Step {
        let formula = self.formula(test);
        if formula.atoms().iter().all(is_own) && matches!(self.outcome(&formula), Outcome::Open(_)) {
            return Step::Here;
        }
        let mut paths = Vec::new();
        let world = std::mem::take(&mut self.w);
        self.split_by_flags(&formula, world, &mut |_, world, truth| {
            if truth != Some(false) {
                paths.push(Path { world, flow: Flow::Next });
            }
        });
        Step::Paths(paths)
    }

    /// Splits a world until the formula is decided or cannot be; `None` means that nothing tells.
    pub fn split(&mut self, formula: &Formula, world: World, then: &mut dyn FnMut(&mut Self, World, Option<bool>)) {
        self.ask(formula);
        match formula.eval(&world.facts) {
            Outcome::Decided(b) => then(self, world, Some(b)),
            Outcome::Open(atom) => match self.sides_by(&atom, world) {
                Ok(sides) => sides.into_iter().for_each(|side| self.split(formula, side, then)),
                Err(world) => then(self, *world, None),
            },
        }
    }

    /// The same by the flags of a formula alone, where it has tests that no other can repeat: `x.dim() == 3 and config.sp` is false in every
    /// world without `sp`, and nothing tells in the others.
    fn split_by_flags(
        &mut self,
        formula: &Formula,
        world: World,
        then: &mut dyn FnMut(&mut Self, World, Option<bool>),
    ) {
        self.ask(formula);
        if let Outcome::Decided(b) = formula.eval(&world.facts) {
            return then(self, world, Some(b));
        }
        let open = |atom: &Atom| !is_own(atom) && world.facts.get(atom).is_none();
        match formula.atoms().into_iter().find(open) {
            None => then(self, world, None),
            Some(atom) => match self.sides_by(&atom, world) {
                Ok(sides) => sides.into_iter().for_each(|side| self.split_by_flags(formula, side, then)),
                Err(world) => then(self, *world, None),
            },
        }
    }

    /// The possible worlds in which an atom is true, and false; the world itself if it knows too much already.
    fn sides_by(&mut self, atom: &Atom, world: World) -> Result<Vec<World>, Box<World>> {
        let known = world.facts.iter().count();
        self.ask_room(known);
        match self.flag_is_fixed(atom) {
            Some(value) => {
                let facts = world.facts.with(atom.clone(), value);
                return Ok(vec![World { facts, ..world }]);
            }
            None if known >= MAX_WORLDS => return Err(Box::new(world)),
            None => {}
        }
        let mut sides = Vec::new();
        for value in [true, false] {
            let mut side = world.clone();
            side.facts = side.facts.with(atom.clone(), value);
            if let (false, Some(last)) = (value, self.only_choice(&side, atom)) {
                side.facts = side.facts.with(last, true);
            }
            if side.facts.possible() {
                sides.push(side);
            }
        }
        Ok(sides)
    }

    /// The value that a flag of the configuration has when a world excludes all others.
    fn only_choice(&self, world: &World, atom: &Atom) -> Option<Atom> {
        let Atom::Equals(name, _) = atom else { return None };
        let excluded: Vec<&Const> = world
            .facts
            .iter()
            .filter_map(|(a, v)| match a {
                Atom::Equals(n, c) if n == name && !v => Some(c),
                _ => None,
            })
            .collect();
        self.settings.last_choice(name, &excluded).map(|last| Atom::Equals(name.clone(), last))
    }

    fn branch(&mut self, id: StmtId, test: &Operand, then: &Block, orelse: &Block) -> Vec<Path> {
        let kept = self.kept_test(test);
        let test = self.operand(test);
        if test == Value::Unset && self.deriving.is_some() {
            // An attribute that this way through the forward has not stored: Python raises.
            return Vec::new();
        }
        if let Some(axes) = differing(&test) {
            let world = std::mem::take(&mut self.w);
            return self.both(id, world, then, orelse, Meeting::Ranks(axes));
        }
        let kept = kept.filter(|_| test == Value::Unknown);
        let is_open = kept.is_none() && matches!(test, Value::Unknown | Value::Number(_) | Value::Share(_));
        if is_open || self.is_data_test(&test) {
            let world = std::mem::take(&mut self.w);
            return self.both(id, world, then, orelse, Meeting::Join);
        }
        let formula = kept.unwrap_or_else(|| self.formula(&test));
        if formula.atoms().iter().all(is_own) && matches!(self.outcome(&formula), Outcome::Open(_)) {
            let world = std::mem::take(&mut self.w);
            return self.either(id, &formula, world, then, orelse);
        }
        let mut sides: Vec<(World, Option<bool>)> = Vec::new();
        let world = std::mem::take(&mut self.w);
        self.split_by_flags(&formula, world, &mut |_, world, truth| sides.push((world, truth)));
        let mut out = Vec::new();
        for (world, truth) in sides {
            match truth {
                Some(b) => {
                    self.w = world;
                    out.extend(self.block(if b { then } else { orelse }));
                }
                None => out.extend(self.either(id, &formula, world, then, orelse)),
            }
        }
        self.meet(Some(id), out, &Meeting::Worlds)
    }

    /// Both sides of a test that is open. Of one that asks whether there are several ranks, the side of those; the other one as well where
    /// that one leads to nothing: `if is_initialized(): return`.
    fn either(&mut self, id: StmtId, test: &Formula, world: World, then: &Block, orelse: &Block) -> Vec<Path> {
        let several = several_ranks();
        let outcome = match world.facts.get(&several) {
            None => test.eval(&world.facts.with(several, true)),
            Some(_) => Outcome::Open(several),
        };
        let Outcome::Decided(holds) = outcome else { return self.both(id, world, then, orelse, Meeting::Join) };
        let (of_several, of_one) = if holds { (then, orelse) } else { (orelse, then) };
        self.w = world.clone();
        let mut paths = self.block(of_several);
        let goes_on = |flow: &Flow| match flow {
            Flow::Next => true,
            Flow::Return(value) => *value != Value::NONE,
            Flow::Raise | Flow::Break | Flow::Continue => false,
        };
        if !paths.iter().any(|path| goes_on(&path.flow)) {
            self.w = world;
            paths.extend(self.block(of_one));
        }
        self.meet(Some(id), paths, &Meeting::Join)
    }

    fn both(&mut self, id: StmtId, world: World, then: &Block, orelse: &Block, meeting: Meeting) -> Vec<Path> {
        let meeting = match meeting {
            // What a function computes on one path means nothing on the other.
            Meeting::Join if self.deriving.is_some() => Meeting::Worlds,
            other => other,
        };
        let restricted = self.rank_restricted.clone();
        if let Meeting::Ranks(axes) = &meeting {
            self.rank_restricted = restricted.iter().chain(axes.iter()).cloned().collect();
        }
        self.w = world.clone();
        let mut paths = self.block(then);
        self.w = world;
        paths.extend(self.block(orelse));
        self.rank_restricted = restricted;
        if let Meeting::Ranks(axes) = &meeting
            && paths.iter().any(|p| matches!(p.flow, Flow::Return(_)))
        {
            // What comes after is executed by the ranks that are still here.
            for path in &mut paths {
                let ranks = &mut path.world.modes.ranks;
                *ranks = ranks.iter().chain(axes.iter()).cloned().collect();
            }
        }
        self.meet(Some(id), paths, &meeting)
    }

    /// Brings the paths that go on together.
    fn meet(&mut self, after: Option<StmtId>, paths: Vec<Path>, meeting: &Meeting) -> Vec<Path> {
        let (on, mut out): (Vec<Path>, Vec<Path>) = paths.into_iter().partition(|p| p.flow == Flow::Next);
        let worlds: Vec<World> = on.into_iter().map(|p| p.world).collect();
        let worlds = match meeting {
            Meeting::Worlds => self.limit(worlds, after),
            Meeting::Join => self.join_all(worlds, None, after),
            Meeting::Ranks(axes) => self.join_all(worlds, Some(axes), after),
        };
        out.extend(worlds.into_iter().map(|world| Path { world, flow: Flow::Next }));
        out
    }

    /// One world that covers all; worlds with different facts stay apart where both sides of a branch keep them.
    pub fn join_all(&mut self, worlds: Vec<World>, ranks: Option<&AxisSet>, after: Option<StmtId>) -> Vec<World> {
        let mut kept: Vec<World> = Vec::new();
        for world in worlds {
            match kept.iter().position(|k| k.facts == world.facts) {
                Some(at) => {
                    let other = std::mem::take(&mut kept[at]);
                    kept[at] = Joiner::new(&mut self.next_id, ranks.cloned()).worlds(other, &world);
                }
                None => kept.push(world),
            }
        }
        self.limit(kept, after)
    }

    fn for_loop(
        &mut self,
        id: StmtId,
        dst: crate::ir::LocalId,
        iterated: &Value,
        body: &Block,
        orelse: &Block,
    ) -> Vec<Path> {
        if let Some(items) = self.literal_items(iterated).filter(|items| items.len() <= MAX_UNROLLED) {
            return self.unrolled(id, dst, &items, body, orelse);
        }
        let element = self.element_of(iterated);
        if self.goes_through_layers(iterated, &element, body) {
            return self.unrolled(id, dst, &[element.clone(), element], body, orelse);
        }
        self.rounds(&[body], orelse, &mut |m: &mut Self| {
            m.assign(id, dst, element.clone());
            m.block(body)
        })
    }

    /// Visits the elements of a literal sequence one by one.
    fn unrolled(
        &mut self,
        id: StmtId,
        dst: crate::ir::LocalId,
        items: &[Value],
        body: &Block,
        orelse: &Block,
    ) -> Vec<Path> {
        let mut live = vec![std::mem::take(&mut self.w)];
        let (mut out, mut broken) = (Vec::new(), Vec::new());
        for item in items {
            let mut next = Vec::new();
            for world in live {
                self.w = world;
                self.assign(id, dst, item.clone());
                for path in self.block(body) {
                    match path.flow {
                        Flow::Next | Flow::Continue => next.push(path.world),
                        Flow::Break => broken.push(path.world),
                        Flow::Return(_) | Flow::Raise => out.push(path),
                    }
                }
            }
            live = self.limit(next, None);
        }
        for world in live {
            self.w = world;
            out.extend(self.block(orelse));
        }
        out.extend(broken.into_iter().map(|world| Path { world, flow: Flow::Next }));
        self.meet(Some(id), out, &Meeting::Worlds)
    }

    fn while_loop(&mut self, id: StmtId, head: &Block, test: &Operand, body: &Block, orelse: &Block) -> Vec<Path> {
        let _ = id;
        self.rounds(&[head, body], orelse, &mut |m: &mut Self| {
            let mut out = Vec::new();
            for path in m.block(head) {
                if path.flow != Flow::Next {
                    out.push(path);
                    continue;
                }
                m.w = path.world;
                let test = m.operand(test);
                if test == Value::FALSE {
                    out.push(Path { world: std::mem::take(&mut m.w), flow: Flow::Break });
                } else {
                    out.extend(m.block(body));
                }
            }
            out
        })
    }

    /// A loop to its fixpoint: each round starts from the join of the rounds before.
    fn rounds(
        &mut self,
        blocks: &[&Block],
        orelse: &Block,
        round: &mut dyn FnMut(&mut Self) -> Vec<Path>,
    ) -> Vec<Path> {
        let mut state = std::mem::take(&mut self.w);
        let mut made = Vec::new();
        let mut out = Vec::new();
        let mut broken: Vec<World> = Vec::new();
        self.loop_depth += 1;
        for n in 0..=MAX_LOOP_ROUNDS {
            self.w = state.clone();
            let mut ends = vec![state.clone()];
            for path in round(self) {
                match path.flow {
                    Flow::Next | Flow::Continue => ends.push(path.world),
                    Flow::Break => broken.push(path.world),
                    Flow::Return(_) | Flow::Raise => {
                        if n == 0 {
                            out.push(path);
                        }
                    }
                }
            }
            let joined = ends
                .into_iter()
                .reduce(|a, b| Joiner::new(&mut self.next_id, None).worlds(a, &b))
                .expect("at least the state before the loop");
            let unlike = unlike_cells(&joined, &state);
            if n == 0 && unlike.as_ref().is_none_or(|cells| !cells.is_empty()) {
                made = self.filled(blocks, &state);
            }
            // What no round reads changes no round.
            let stable = unlike.is_some_and(|cells| cells.iter().all(|id| made.contains(id)));
            state = joined;
            if stable {
                break;
            }
            if n == MAX_LOOP_ROUNDS {
                self.lose(Reason::Budget, "loop rounds");
            }
        }
        self.loop_depth -= 1;
        self.w = state;
        out.extend(self.block(orelse));
        out.extend(broken.into_iter().map(|world| Path { world, flow: Flow::Next }));
        let (on, mut rest): (Vec<Path>, Vec<Path>) = out.into_iter().partition(|p| p.flow == Flow::Next);
        let worlds: Vec<World> = on.into_iter().map(|p| p.world).collect();
        let joined = worlds.into_iter().reduce(|a, b| Joiner::new(&mut self.next_id, None).worlds(a, &b));
        rest.extend(joined.map(|world| Path { world, flow: Flow::Next }));
        rest
    }

    /// A handler starts from the join of the states before and after the body: anything between may have raised.
    fn try_block(&mut self, body: &Block, handlers: &[Block], orelse: &Block, finally: &Block) -> Vec<Path> {
        let before = self.w.clone();
        let (mut out, mut raised, mut ended) = (Vec::new(), Vec::new(), Vec::new());
        for path in self.block(body) {
            match path.flow {
                Flow::Next => ended.push(path.world),
                Flow::Raise => raised.push(path.world),
                Flow::Return(_) | Flow::Break | Flow::Continue => out.push(path),
            }
        }
        let mut start = before;
        for world in ended.iter().chain(&raised) {
            start = Joiner::new(&mut self.next_id, None).worlds(start, world);
        }
        for world in ended {
            self.w = world;
            out.extend(self.block(orelse));
        }
        // What only fails where no group exists is not written for one process alone.
        let asks = |path: &Path| matches!(&path.flow, Flow::Return(Value::Size(_) | Value::Rank(_)));
        let handlers = if raised.is_empty() && !out.is_empty() && out.iter().all(asks) { &[] } else { handlers };
        for handler in handlers {
            self.w = start.clone();
            out.extend(self.block(handler));
        }
        if finally.is_empty() {
            return self.meet(None, out, &Meeting::Join);
        }
        let mut after = Vec::new();
        for path in self.meet(None, out, &Meeting::Join) {
            self.w = path.world;
            for ended in self.block(finally) {
                let flow = if ended.flow == Flow::Next { path.flow.clone() } else { ended.flow };
                after.push(Path { world: ended.world, flow });
            }
        }
        after
    }

    /// Stores a value in a variable, and notes the type of a variable of the user.
    pub fn assign(&mut self, id: StmtId, dst: crate::ir::LocalId, value: Value) {
        if !self.is_recording() {
            return self.set_local(dst, value);
        }
        self.set_local(dst, value.clone());
        match &self.func().locals()[dst] {
            local if local.kind != LocalKind::Temp => self.record(id, &local.name, &value),
            _ if self.settings.wants_steps => self.record(id, &Name::default(), &value),
            _ => {}
        }
    }

    /// Whether a test reads data rather than configuration: a tensor, a container.
    fn is_data_test(&self, test: &Value) -> bool {
        matches!(test, Value::Tensor(_) | Value::Path(_))
    }

    /// The value of a claim's target.
    pub fn claim_target(&mut self, target: &ClaimTarget) -> Option<Value> {
        match target {
            ClaimTarget::Local(local) => Some(self.local(*local)),
            ClaimTarget::Attr(base, name) => {
                let base = self.operand(base);
                Some(self.attr_quietly(&base, name))
            }
            ClaimTarget::Other => None,
        }
    }

    /// A constant as a value; the operands of statements.
    pub fn operand(&mut self, operand: &Operand) -> Value {
        match operand {
            Operand::Local(local) => self.local(*local),
            Operand::Global(name) => self.global(name),
            Operand::Const(c) => Value::Const(Const::clone(c)),
        }
    }
}

/// Which two of so many paths to join where there are too many: such as no type tells apart, or the last ones.
pub fn nearest(count: usize, alike: impl Fn(usize, usize, Agree) -> bool) -> (usize, usize) {
    let pairs = || (1..count).rev().flat_map(|last| (0..last).rev().map(move |at| (at, last)));
    let on = |agree| pairs().find(|(at, last)| alike(*at, *last, agree));
    on(Agree::Variables).or_else(|| on(Agree::Types)).unwrap_or((count - 2, count - 1))
}

/// Whether a statement does nothing but give a temporary a value.
fn is_temporary(node: &Node, func: &Func) -> bool {
    match &node.stmt {
        Stmt::Assign { dst, value } => {
            let calls = matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. });
            !calls && func.locals()[*dst].kind == LocalKind::Temp
        }
        _ => false,
    }
}

/// The test whether the program runs on several ranks: it is written for these.
pub fn several_ranks() -> Atom {
    Atom::True(Name::from("?several ranks"))
}

/// A test that no other test can repeat.
fn is_own(atom: &Atom) -> bool {
    matches!(atom, Atom::True(name) | Atom::IsNone(name) if name.starts_with('?'))
}

/// Whether a formula has a test that no other test can repeat: keeping its outcome apart would split for nothing.
pub fn is_opaque(formula: &Formula) -> bool {
    match formula {
        Formula::Atom(atom) => is_own(atom),
        Formula::Not(f) => is_opaque(f),
        Formula::And(items) | Formula::Or(items) => items.iter().any(is_opaque),
        Formula::Const(_) => false,
    }
}
