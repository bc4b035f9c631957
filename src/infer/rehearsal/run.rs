//! One rank executes a function that makes groups. In: the project, a rank and the number of ranks. Out: the groups that it makes, and
//! what its variables hold. Never: a guess; where something unknown decides what is made, the rehearsal stops. Next: `calls.rs`.

use super::value::{Closure, Group, Shared, Val};
use crate::ir::{
    Block, BuildKind, CmpOp, Const, FuncId, Item, LocalId, LocalKind, Operand, Rvalue, Stmt, StmtId, UnOp,
};
use crate::project::{ClassRef, FuncRef, ModuleId, Project};
use crate::rules::RuleBook;
use crate::source::{Idx, Name, Place};
use rustc_hash::FxHashMap;
use std::cell::RefCell;
use std::rc::Rc;

/// Something unknown decides, or it takes too long: nothing can be said.
#[derive(Debug)]
pub struct Stop;

/// How a block ends.
#[derive(Debug)]
pub enum Flow {
    Next,
    Return(Val),
    Raise,
    Break,
    Continue,
}

/// A group that a rank makes.
#[derive(Clone, Debug)]
pub struct Made {
    pub ranks: Vec<i64>,
    pub at: Place,
}

/// The own rank is not in a list of ranks, and the test whether it is says so.
#[derive(Clone, Debug)]
pub struct Misjudged {
    pub ranks: Vec<i64>,
    pub at: Place,
    /// The number that was looked for.
    pub number: i64,
    /// It is that of a round of a loop.
    pub of_loop: bool,
}

/// A variable that holds a group.
#[derive(Clone, Debug)]
pub struct Kept {
    pub name: Name,
    pub group: Rc<Group>,
    pub at: Place,
    /// The group of this rank that it held before, of the same call.
    pub before: Option<Rc<Group>>,
    pub lasts: Lasts,
}

/// How long a variable lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lasts {
    /// As long as the function is executed.
    No,
    /// A name of the module, or an attribute.
    Always,
    /// An entry of a dict of the module, under this key.
    Under(String),
}

/// Variables of a function under execution.
struct Frame {
    at: FuncRef,
    locals: Vec<Val>,
    cells: FxHashMap<LocalId, Shared<Val>>,
    /// What a generator gives.
    yields: Vec<Val>,
}

/// What one rank has done.
pub struct Run<'a> {
    pub project: &'a Project,
    pub rules: &'a RuleBook,
    pub rank: i64,
    pub size: i64,
    pub made: Vec<Made>,
    pub misjudged: Vec<Misjudged>,
    pub kept: Vec<Kept>,
    pub globals: FxHashMap<(ModuleId, Name), Val>,
    frames: Vec<Frame>,
    steps: u32,
    /// A group is kept in a list, a dict or a tuple.
    pub stored: bool,
    /// The group that the rehearsed function gives, and where.
    pub returned: Option<(Rc<Group>, Place)>,
}

impl<'a> Run<'a> {
    pub fn new(project: &'a Project, rules: &'a RuleBook, (rank, size): (i64, i64)) -> Run<'a> {
        let (made, misjudged, kept) = (Vec::new(), Vec::new(), Vec::new());
        let globals = FxHashMap::default();
        let (frames, returned) = (Vec::new(), None);
        Run { project, rules, rank, size, made, misjudged, kept, globals, frames, steps: 0, stored: false, returned }
    }

    /// Statements executed so far.
    pub fn steps(&self) -> u32 {
        self.steps
    }

    /// Takes steps of those that there are.
    pub fn take(&mut self, steps: u32) -> Result<(), Stop> {
        self.steps = self.steps.saturating_add(steps);
        if self.steps > super::super::limits::MAX_REHEARSED { Err(Stop) } else { Ok(()) }
    }

    /// Executes a body whose parameters have these values. `None`: it raises.
    pub fn execute(
        &mut self,
        at: FuncRef,
        cells: &[(LocalId, Shared<Val>)],
        given: Vec<Val>,
    ) -> Result<Option<Val>, Stop> {
        let func = self.project.func(at);
        if self.frames.len() >= super::super::limits::MAX_CALL_DEPTH || func.is_async {
            return Err(Stop);
        }
        let mut frame = Frame {
            at,
            locals: vec![Val::Unknown; func.locals().len()],
            cells: cells.iter().cloned().collect(),
            yields: Vec::new(),
        };
        let cell = |local: LocalId| func.locals()[local].kind == LocalKind::Cell;
        for local in (0..func.locals().len()).map(LocalId::from_index).filter(|l| cell(*l)) {
            frame.cells.insert(local, Rc::new(RefCell::new(Val::Unknown)));
        }
        self.frames.push(frame);
        for (param, value) in func.params.iter().zip(given) {
            self.set(param.local, value);
        }
        let flow = self.block(func.body());
        let frame = self.frames.pop().expect("pushed above");
        Ok(match flow? {
            Flow::Raise => None,
            _ if func.is_generator => Some(Val::list(frame.yields)),
            Flow::Return(value) => Some(value),
            Flow::Next | Flow::Break | Flow::Continue => Some(Val::None),
        })
    }

    fn frame(&self) -> &Frame {
        self.frames.last().expect("a function is under execution")
    }
    fn frame_mut(&mut self) -> &mut Frame {
        self.frames.last_mut().expect("a function is under execution")
    }

    /// The function under execution.
    pub fn at(&self) -> FuncRef {
        self.frame().at
    }

    pub fn module(&self) -> ModuleId {
        self.frame().at.module
    }

    pub fn place(&self, id: StmtId) -> Place {
        let at = self.frame().at;
        Place { file: self.project.file(at.module), span: self.project.func(at).spans().of(id) }
    }

    fn local(&self, local: LocalId) -> Val {
        let frame = self.frame();
        match frame.cells.get(&local) {
            Some(cell) => cell.borrow().clone(),
            None => frame.locals[local.index()].clone(),
        }
    }

    fn set(&mut self, local: LocalId, value: Val) {
        let frame = self.frame_mut();
        match frame.cells.get(&local) {
            Some(cell) => *cell.borrow_mut() = value,
            None => frame.locals[local.index()] = value,
        }
    }

    pub fn operand(&mut self, operand: &Operand) -> Val {
        match operand {
            Operand::Local(local) => self.local(*local),
            Operand::Const(c) => Val::constant(c),
            Operand::Global(name) => self.global(self.module(), name),
        }
    }

    pub fn block(&mut self, block: &Block) -> Result<Flow, Stop> {
        for node in block {
            self.take(1)?;
            match self.step(node.id, &node.stmt)? {
                Flow::Next => {}
                other => return Ok(other),
            }
        }
        Ok(Flow::Next)
    }

    fn step(&mut self, id: StmtId, stmt: &Stmt) -> Result<Flow, Stop> {
        match stmt {
            Stmt::Assign { dst, value } => {
                let Some(result) = self.rvalue(id, value)? else { return Ok(Flow::Raise) };
                self.keep(id, *dst, value, &result);
                self.set(*dst, result);
            }
            Stmt::SetGlobal { name, value } => {
                let value = self.operand(value);
                let key = (self.module(), name.clone());
                let before = self.globals.get(&key).cloned();
                self.note(id, name, &value, before.as_ref(), Lasts::Always);
                self.globals.insert(key, value);
            }
            Stmt::SetAttr { base, name, value } => {
                // The own rank may be set later, by another method.
                let later = matches!(value, Operand::Const(Const::Int(_))) && is_of_rank(name);
                let (base, value) = (self.operand(base), self.operand(value));
                self.set_attr(id, &base, name, if later { Val::Unknown } else { value });
            }
            Stmt::SetItem { base, index, value } => {
                let dict = if let Operand::Global(name) = base { Some(name) } else { None };
                let (base, index, value) = (self.operand(base), self.operand(index), self.operand(value));
                if let (Some(name), Val::Dict(_)) = (dict, &base) {
                    self.note(id, name, &value, None, Lasts::Under(format!("{index:?}")));
                }
                return self.set_item(&base, &index, value);
            }
            Stmt::Unpack { value, before, star, after } => {
                let value = self.operand(value);
                return Ok(self.unpack(&value, before, *star, after));
            }
            Stmt::If { .. } | Stmt::For { .. } | Stmt::While { .. } | Stmt::With { .. } | Stmt::Try { .. } => {
                return self.compound(stmt);
            }
            Stmt::Assert { test } if self.operand(test).truth() == Some(false) => return Ok(Flow::Raise),
            Stmt::Assert { .. } | Stmt::ImportStar { .. } => {}
            Stmt::Return { value } => {
                let value = self.operand(value);
                if let (Val::Group(group), [_]) = (&value, self.frames.as_slice()) {
                    self.returned = Some((group.clone(), self.place(id)));
                }
                return Ok(Flow::Return(value));
            }
            Stmt::Raise => return Ok(Flow::Raise),
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
            Stmt::Def { .. } | Stmt::Class { .. } | Stmt::Import { .. } | Stmt::Append { .. } | Stmt::Delete { .. } => {
                self.define(stmt);
            }
        }
        Ok(Flow::Next)
    }

    fn compound(&mut self, stmt: &Stmt) -> Result<Flow, Stop> {
        match stmt {
            Stmt::If { test, then, orelse } => match self.operand(test).truth() {
                Some(true) => self.block(then),
                Some(false) => self.block(orelse),
                None => self.unsure(&[then, orelse]),
            },
            Stmt::For { dst, iter, body, orelse } => {
                let Some(items) = self.operand(iter).items() else {
                    self.set(*dst, Val::Unknown);
                    return self.unsure(&[body, orelse]);
                };
                for item in items {
                    self.set(*dst, item);
                    match self.block(body)? {
                        Flow::Next | Flow::Continue => {}
                        Flow::Break => return Ok(Flow::Next),
                        other => return Ok(other),
                    }
                }
                self.block(orelse)
            }
            Stmt::While { head, test, body, orelse } => self.while_loop(head, test, body, orelse),
            Stmt::With { bind, body, .. } => {
                bind.iter().for_each(|local| self.set(*local, Val::Unknown));
                self.block(body)
            }
            Stmt::Try { body, orelse, finally, .. } => {
                let flow = self.block(body)?;
                let flow = match flow {
                    Flow::Raise => return Err(Stop),
                    Flow::Next => self.block(orelse)?,
                    other => other,
                };
                Ok(match self.block(finally)? {
                    Flow::Next => flow,
                    other => other,
                })
            }
            _ => Ok(Flow::Next),
        }
    }

    /// Binds what a statement defines.
    fn define(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::Def { dst, func, defaults, .. } => {
                let closure = self.closure(*func, defaults);
                self.set(*dst, closure);
            }
            Stmt::Class { dst, class, .. } => {
                let class = ClassRef { module: self.module(), class: *class };
                self.set(*dst, Val::Class(class));
            }
            Stmt::Import { dst, path, member, level, .. } => {
                let whole = self.project.absolute(self.module(), path, *level);
                let whole = member.as_ref().map_or(whole.clone(), |m| format!("{whole}.{m}"));
                let found = self.project.path(&whole);
                let value = self.resolved(found);
                self.set(*dst, value);
            }
            Stmt::Append { collection, key, value } => {
                let value = self.operand(value);
                match (self.local(*collection), key) {
                    (Val::List(items), None) => {
                        self.stored |= matches!(value, Val::Group(_));
                        items.borrow_mut().push(value);
                    }
                    (Val::Dict(entries), Some(key)) => {
                        let key = self.operand(key);
                        put(&entries, key, value);
                    }
                    _ => {}
                }
            }
            Stmt::Delete { local } => self.set(*local, Val::Unknown),
            _ => {}
        }
    }

    fn while_loop(&mut self, head: &Block, test: &Operand, body: &Block, orelse: &Block) -> Result<Flow, Stop> {
        loop {
            match self.block(head)? {
                Flow::Next => {}
                other => return Ok(other),
            }
            match self.operand(test).truth() {
                Some(true) => {}
                Some(false) => return self.block(orelse),
                None => return Err(Stop),
            }
            match self.block(body)? {
                Flow::Next | Flow::Continue => {}
                Flow::Break => return Ok(Flow::Next),
                other => return Ok(other),
            }
        }
    }

    /// Blocks of which it is not known whether they run: what they bind is unknown afterwards. One that fails is not entered.
    fn unsure(&mut self, blocks: &[&Block]) -> Result<Flow, Stop> {
        let fails = |b: &&&Block| matches!(b.last().map(|n| &n.stmt), Some(Stmt::Raise));
        if let [then, orelse] = blocks
            && let Some(failing) = [then, orelse].iter().position(fails)
        {
            return self.block([orelse, then][failing]);
        }
        let mut bound = Vec::new();
        if !blocks.iter().all(|b| self.is_harmless(b, &mut bound)) {
            return Err(Stop);
        }
        bound.into_iter().for_each(|local| self.set(local, Val::Unknown));
        Ok(Flow::Next)
    }

    /// Whether a block does nothing but bind locals, which are added. It calls nothing of the project, and makes no group.
    fn is_harmless(&mut self, block: &Block, bound: &mut Vec<LocalId>) -> bool {
        block.iter().all(|node| match &node.stmt {
            Stmt::Assign { dst, value } => {
                bound.push(*dst);
                match value {
                    Rvalue::Call { callee, .. } => match self.operand(callee) {
                        Val::Path(path) => !self.makes_groups(&path),
                        _ => false,
                    },
                    Rvalue::CallMethod { base, name, .. } => match self.operand(base) {
                        Val::Path(path) => !self.makes_groups(&format!("{path}.{name}")),
                        Val::Unknown | Val::Str(_) => true,
                        _ => false,
                    },
                    Rvalue::Yield(_) => false,
                    _ => true,
                }
            }
            Stmt::If { then, orelse, .. } => self.is_harmless(then, bound) && self.is_harmless(orelse, bound),
            Stmt::For { dst, body, orelse, .. } => {
                bound.push(*dst);
                self.is_harmless(body, bound) && self.is_harmless(orelse, bound)
            }
            Stmt::Unpack { before, star, after, .. } => {
                bound.extend(before.iter().chain(star).chain(after));
                true
            }
            Stmt::Append { collection, .. } => bound.contains(collection),
            Stmt::Assert { .. } => true,
            Stmt::SetGlobal { .. }
            | Stmt::SetAttr { .. }
            | Stmt::SetItem { .. }
            | Stmt::While { .. }
            | Stmt::With { .. }
            | Stmt::Try { .. }
            | Stmt::Return { .. }
            | Stmt::Raise
            | Stmt::Break
            | Stmt::Continue
            | Stmt::Def { .. }
            | Stmt::Class { .. }
            | Stmt::Import { .. }
            | Stmt::ImportStar { .. }
            | Stmt::Delete { .. } => false,
        })
    }

    fn closure(&mut self, func: FuncId, defaults: &[(u32, Operand)]) -> Val {
        let at = FuncRef { module: self.module(), func };
        let defaults = defaults.iter().map(|(n, o)| (*n, self.operand(o))).collect();
        let captures = &self.project.func(at).captures;
        let cells = captures.iter().filter_map(|(outer, inner)| {
            let cell = self.frame().cells.get(outer)?;
            Some((*inner, cell.clone()))
        });
        let cells = cells.collect();
        Val::Func(Rc::new(Closure { at, defaults, cells }))
    }

    fn unpack(&mut self, value: &Val, before: &[LocalId], star: Option<LocalId>, after: &[LocalId]) -> Flow {
        let Some(items) = value.items() else {
            before.iter().chain(&star).chain(after).for_each(|local| self.set(*local, Val::Unknown));
            return Flow::Next;
        };
        let fixed = before.len() + after.len();
        if items.len() < fixed || star.is_none() && items.len() != fixed {
            return Flow::Raise;
        }
        let middle = items.len() - after.len();
        before.iter().zip(&items).for_each(|(local, v)| self.set(*local, v.clone()));
        after.iter().zip(&items[middle..]).for_each(|(local, v)| self.set(*local, v.clone()));
        if let Some(star) = star {
            self.set(star, Val::list(items[before.len()..middle].to_vec()));
        }
        Flow::Next
    }

    /// The value of an operation; `None`: it raises.
    fn rvalue(&mut self, id: StmtId, value: &Rvalue) -> Result<Option<Val>, Stop> {
        Ok(Some(match value {
            Rvalue::Use(o) | Rvalue::Await(o) => self.operand(o),
            Rvalue::Attr { base, name } => {
                let base = self.operand(base);
                return self.attr(&base, name);
            }
            Rvalue::Item { base, index } => {
                let (base, index) = (self.operand(base), self.operand(index));
                return Ok(item(&base, &index));
            }
            Rvalue::Call { callee, args } => {
                let callee = self.operand(callee);
                return self.call(id, &callee, args);
            }
            Rvalue::CallMethod { base, name, args } => {
                let base = self.operand(base);
                return self.call_method(id, &base, name, args);
            }
            Rvalue::Unary { op, operand } => {
                let value = self.operand(operand);
                match op {
                    UnOp::Not => value.truth().map_or(Val::Unknown, |b| Val::Bool(!b)),
                    UnOp::Neg => Val::binary(crate::ir::BinOp::Sub, &Val::Int(0), &value).unwrap_or(Val::Unknown),
                    UnOp::Pos => value,
                    UnOp::Invert => Val::Unknown,
                }
            }
            Rvalue::Binary { op, left, right } | Rvalue::InPlace { op, left, right } => {
                let (left, right) = (self.operand(left), self.operand(right));
                if let (Rvalue::InPlace { .. }, Val::List(items), Some(more)) = (value, &left, right.items()) {
                    if items.borrow().len() + more.len() > super::value::LONGEST {
                        return Err(Stop);
                    }
                    items.borrow_mut().extend(more);
                    return Ok(Some(left));
                }
                return Ok(Val::binary(*op, &left, &right));
            }
            Rvalue::Compare { op, left, right } => {
                let left_at = left;
                let (left, right) = (self.operand(left), self.operand(right));
                let holds = Val::compare(*op, &left, &right);
                if *op == CmpOp::In && holds == Some(true) {
                    self.judge(id, (&left, left_at), &right);
                }
                holds.map_or(Val::Unknown, Val::Bool)
            }
            Rvalue::Bool { and, operands } => {
                let values: Vec<Val> = operands.iter().map(|o| self.operand(o)).collect();
                let decides = values.iter().find(|v| v.truth() == Some(!and));
                match decides {
                    Some(value) => value.clone(),
                    None if values.iter().any(|v| v.truth().is_none()) => Val::Unknown,
                    None => values.last().cloned().unwrap_or(Val::Unknown),
                }
            }
            Rvalue::Build { kind, items } => self.build(*kind, items),
            Rvalue::Closure { func, defaults } => self.closure(*func, defaults),
            Rvalue::Yield(o) => {
                let value = self.operand(o);
                self.frame_mut().yields.push(value);
                Val::None
            }
            Rvalue::Opaque => Val::Unknown,
        }))
    }

    fn build(&mut self, kind: BuildKind, items: &[Item]) -> Val {
        let mut out = Vec::with_capacity(items.len());
        for one in items {
            match one {
                Item::One(o) => out.push(self.operand(o)),
                Item::Star(o) => match self.operand(o).items() {
                    Some(more) if kind != BuildKind::Dict => out.extend(more),
                    _ => return Val::Unknown,
                },
            }
        }
        self.stored |= kind != BuildKind::Slice && out.iter().any(|v| matches!(v, Val::Group(_)));
        match kind {
            BuildKind::List => Val::list(out),
            BuildKind::Set => distinct(&out).map_or(Val::Unknown, Val::list),
            BuildKind::Tuple => Val::Tuple(out.into()),
            BuildKind::Slice => Val::Slice(out.into()),
            BuildKind::Dict => {
                let entries = Shared::default();
                for pair in out.chunks(2) {
                    put(&entries, pair[0].clone(), pair[1].clone());
                }
                Val::Dict(entries)
            }
            BuildKind::Str => Val::Unknown,
        }
    }

    /// A test says that a number other than the own rank is in a list of ranks that the own rank is not in.
    fn judge(&mut self, id: StmtId, (number, written): (&Val, &Operand), list: &Val) {
        if let (Val::Int(number), Some(ranks)) = (number, list.ranks())
            && *number != self.rank
            && !ranks.contains(&self.rank)
        {
            let at = self.place(id);
            let body = self.project.func(self.at()).body();
            let of_loop = matches!(written, Operand::Local(local) if is_of_loop(body, *local));
            self.misjudged.push(Misjudged { ranks, at, number: *number, of_loop });
        }
    }

    /// A variable of the user gets the group that another one holds.
    fn keep(&mut self, id: StmtId, dst: LocalId, value: &Rvalue, result: &Val) {
        if let (Rvalue::Use(Operand::Local(_)), Val::Group(_)) = (value, result) {
            let func = self.project.func(self.frame().at);
            if func.locals()[dst].kind != LocalKind::Temp {
                let before = self.local(dst);
                self.note(id, &func.locals()[dst].name, result, Some(&before), Lasts::No);
            }
        }
    }

    fn note(&mut self, id: StmtId, name: &Name, value: &Val, before: Option<&Val>, lasts: Lasts) {
        let Val::Group(group) = value else { return };
        let before = match before {
            Some(Val::Group(old)) if old.made == group.made && old.ranks != group.ranks => {
                let mine = old.ranks.contains(&self.rank) && group.ranks.contains(&self.rank);
                mine.then(|| old.clone())
            }
            _ => None,
        };
        let at = self.place(id);
        self.kept.push(Kept { name: name.clone(), group: group.clone(), at, before, lasts });
    }

    fn set_attr(&mut self, id: StmtId, base: &Val, name: &Name, value: Val) {
        if let Val::Object(object) = base {
            let before = object.borrow().attrs.iter().find(|(n, _)| n == name).map(|(_, v)| v.clone());
            self.note(id, name, &value, before.as_ref(), Lasts::Always);
            let mut object = object.borrow_mut();
            match object.attrs.iter_mut().find(|(n, _)| n == name) {
                Some((_, slot)) => *slot = value,
                None => object.attrs.push((name.clone(), value)),
            }
        }
    }

    fn set_item(&mut self, base: &Val, index: &Val, value: Val) -> Result<Flow, Stop> {
        self.stored |= matches!(value, Val::Group(_));
        match base {
            Val::List(items) => {
                let at = index.int().ok_or(Stop)?;
                let mut items = items.borrow_mut();
                let Some(at) = position(at, items.len()) else { return Ok(Flow::Raise) };
                items[at] = value;
            }
            Val::Dict(entries) => put(entries, index.clone(), value),
            _ => {}
        }
        Ok(Flow::Next)
    }
}

/// Whether a name is that of a rank, or of a machine.
pub fn is_of_rank(name: &str) -> bool {
    let last = name.trim_end_matches('_').rsplit('_').next().unwrap_or_default().to_lowercase();
    matches!(&*last, "rank" | "node" | "host")
}

/// Whether a variable is that of a loop.
fn is_of_loop(block: &Block, local: LocalId) -> bool {
    block.iter().any(|node| {
        let here = matches!(&node.stmt, Stmt::For { dst, .. } if *dst == local);
        here || node.stmt.blocks().any(|inner| is_of_loop(inner, local))
    })
}

/// A place of a list by an index that may count from its end.
pub fn position(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    let at = if index < 0 { index + length } else { index };
    (0..length).contains(&at).then(|| usize::try_from(at).ok()).flatten()
}

/// Puts a value under a key.
pub fn put(entries: &Shared<Vec<(Val, Val)>>, key: Val, value: Val) {
    let mut entries = entries.borrow_mut();
    match entries.iter_mut().find(|(k, _)| k.equals(&key) == Some(true)) {
        Some((_, slot)) => *slot = value,
        None => entries.push((key, value)),
    }
}

/// Numbers in order; `None`: there is something else among them.
pub fn sorted(values: &[Val]) -> Option<Vec<Val>> {
    let mut numbers = values.iter().map(Val::int).collect::<Option<Vec<i64>>>()?;
    numbers.sort_unstable();
    Some(numbers.into_iter().map(Val::Int).collect())
}

/// The different numbers of a set, in order; `None`: there is something else in it.
pub fn distinct(values: &[Val]) -> Option<Vec<Val>> {
    let mut numbers = sorted(values)?;
    numbers.dedup_by_key(|v| v.int());
    Some(numbers)
}

/// `base[index]`; `None`: it raises.
fn item(base: &Val, index: &Val) -> Option<Val> {
    if let Val::Dict(entries) = base {
        let entries = entries.borrow();
        if entries.iter().any(|(k, _)| k.equals(index).is_none()) {
            return Some(Val::Unknown);
        }
        return Some(
            entries.iter().find(|(k, _)| k.equals(index) == Some(true)).map_or(Val::Unknown, |(_, v)| v.clone()),
        );
    }
    if let (Val::List(items), Some(at)) = (base, index.int()) {
        let items = items.borrow();
        return position(at, items.len()).map(|at| items[at].clone());
    }
    let Some(items) = base.items() else { return Some(Val::Unknown) };
    match index {
        Val::Slice(parts) => Some(sliced(&items, parts).map_or(Val::Unknown, |out| match base {
            Val::Tuple(_) => Val::Tuple(out.into()),
            Val::Str(_) => Val::Unknown,
            _ => Val::list(out),
        })),
        other => match other.int() {
            Some(at) => position(at, items.len()).map(|at| items[at].clone()),
            None => Some(Val::Unknown),
        },
    }
}

fn sliced(items: &[Val], parts: &[Val]) -> Option<Vec<Val>> {
    let [start, stop, step] = parts else { return None };
    let length = i64::try_from(items.len()).ok()?;
    let bound = |v: &Val, default: i64| match v {
        Val::None => Some(default),
        other => other.int().map(|i| (if i < 0 { i + length } else { i }).clamp(0, length)),
    };
    let step = if matches!(step, Val::None) { 1 } else { step.int()? };
    if step < 1 {
        let whole = matches!((start, stop), (Val::None, Val::None)) && step == -1;
        return whole.then(|| items.iter().rev().cloned().collect());
    }
    let (start, stop) = (bound(start, 0)?, bound(stop, length)?);
    let at = (start..stop).step_by(usize::try_from(step).ok()?);
    Some(at.filter_map(|i| items.get(usize::try_from(i).ok()?).cloned()).collect())
}
