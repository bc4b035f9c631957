//! What becomes of the largest, the sum of exponentials and the entry of the label that each rank takes of its own part. In: a function. Out:
//! the pieces, with the collectives and the uses of each; functions of the project that it calls are followed. Never: a value that one branch
//! binds otherwise than another: what it was made of is then told. Next: `piece_ops.rs`, which says what operations do.

use super::expr::Expr;
use super::named_axes::of_group;
use super::near;
use super::piece_values::{Cell, CellId, Does, Over, Piece, PieceId, Reduced, Tests, Used, Value, row};
use super::pieces::What;
use super::view::{CollectiveCall, View};
use crate::ir::{Arg, ArgKind, Const, FuncKind, LocalId, LocalKind, Operand, Rvalue, Stmt};
use crate::project::{FuncRef, Resolved};
use crate::source::{Idx, Name, Place};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

/// How many calls are followed one inside the other, and how many steps in all.
const MOST_DEPTH: usize = 3;
const MOST_STEPS: usize = 1500;

/// Decorators that leave what a function does as it is.
const PLAIN: &[&str] = &["staticmethod", "jit", "compile", "script", "no_grad", "inference_mode", "fuse"];

/// The tests around a step, by statement.
type Sides = Vec<(u32, bool)>;

/// The pieces of a function.
#[derive(Default)]
pub struct Flow {
    pub cells: Vec<Cell>,
    pub pieces: Vec<Piece>,
    steps: usize,
}

/// One function that is followed.
#[derive(Default)]
pub struct Frame {
    locals: FxHashMap<LocalId, (CellId, Sides)>,
    /// Tests around the call, and the call in the function where all begins.
    around: Tests,
    called: Option<Place>,
    /// The ranks of groups that it is given.
    over: FxHashMap<LocalId, Over>,
    depth: usize,
}

impl Flow {
    pub fn of(view: &View<'_>) -> Flow {
        let mut flow = Flow::default();
        flow.walk(view, &mut Frame::default());
        flow
    }

    /// Follows a function; what it returns.
    fn walk(&mut self, view: &View<'_>, frame: &mut Frame) -> Option<CellId> {
        let mut returned: Option<CellId> = None;
        for step in 0..view.steps.len() {
            self.steps += 1;
            if self.steps > MOST_STEPS {
                self.tell_all();
                return None;
            }
            // What a handler does is done where something else has failed.
            if !view.steps[step].handlers.is_empty() {
                continue;
            }
            match view.steps[step].stmt {
                Stmt::Assign { dst, value } => {
                    let cell = self.operation(view, frame, step, value);
                    self.bind(view, frame, step, *dst, cell);
                }
                Stmt::Unpack { value, before, star, after } => {
                    let whole = self.operand(view, frame, value);
                    let plain = star.is_none() && after.is_empty();
                    for (at, local) in before.iter().enumerate() {
                        let part = self.part(whole, at, plain.then_some(before.len()));
                        self.bind(view, frame, step, *local, part);
                    }
                    for local in star.iter().chain(after.iter()) {
                        let part = self.made_of(&[whole]);
                        self.bind(view, frame, step, *local, part);
                    }
                }
                Stmt::SetItem { base, index, value } => {
                    let [to, index, value] = [base, &**index, value].map(|o| self.operand(view, frame, o));
                    self.set_item(view, frame, step, (to, index, value));
                    self.call_by(view, frame, base, to);
                }
                Stmt::SetAttr { value, .. } | Stmt::SetGlobal { value, .. } => {
                    let cell = self.operand(view, frame, value);
                    self.tell(cell);
                }
                Stmt::For { dst, iter, .. } => {
                    let all = self.operand(view, frame, iter);
                    let cell = self.made_of(&[all]);
                    self.bind(view, frame, step, *dst, cell);
                }
                Stmt::Return { value } => {
                    let cell = self.operand(view, frame, value);
                    if frame.depth == 0 || returned.is_some() {
                        self.tell_pieces(cell);
                    }
                    if let Some(before) = returned {
                        self.tell_pieces(before);
                    }
                    returned = Some(if returned.is_some() { self.made_of(&[cell]) } else { cell });
                }
                _ => {}
            }
        }
        returned
    }

    pub fn new_cell(&mut self, value: Value) -> CellId {
        self.cells.push(Cell { value, from: SmallVec::new() });
        self.cells.len() - 1
    }

    /// Something that is computed from cells in a way that is not followed.
    pub fn made_of(&mut self, of: &[CellId]) -> CellId {
        let from = of.iter().flat_map(|cell| self.behind(*cell)).collect();
        let cell = self.new_cell(Value::Fresh);
        self.cells[cell].from = from;
        cell
    }

    /// Writes to an object: all that are views of it hold the same.
    pub fn write(&mut self, cell: CellId, from: CellId) {
        let Cell { value, from: of } = self.cells[from].clone();
        self.cells[cell].from = of;
        self.cells[cell].value = match row(&self.cells, from).filter(|_| value == Value::Fresh) {
            Some(row) => Value::Row(row),
            None => value,
        };
    }

    /// The pieces that a value holds or was computed from.
    pub fn behind(&self, cell: CellId) -> Vec<PieceId> {
        let mut all: Vec<PieceId> = self.cells[cell].from.to_vec();
        match &self.cells[cell].value {
            Value::Piece(piece) | Value::Largest(piece) | Value::Log(piece) | Value::Less(piece) => all.push(*piece),
            Value::Tuple(of) | Value::Pack(of) => all.extend(of.iter().flat_map(|cell| self.behind(*cell))),
            _ => {}
        }
        all
    }

    fn behind_operand(&self, frame: &Frame, operand: &Operand) -> Vec<PieceId> {
        let cell = near::local(operand).and_then(|local| frame.locals.get(&local));
        cell.map_or(Vec::new(), |(cell, _)| self.behind(*cell))
    }

    /// Something has it that is not followed.
    pub fn tell(&mut self, cell: CellId) {
        for piece in self.behind(cell) {
            self.pieces[piece].is_told = true;
        }
    }

    /// A caller gets the pieces themselves; what is made of them is what the function is for.
    fn tell_pieces(&mut self, cell: CellId) {
        match self.cells[cell].value.clone() {
            Value::Tuple(of) => of.into_iter().for_each(|cell| self.tell_pieces(cell)),
            Value::Piece(_) | Value::Pack(_) | Value::Largest(_) => self.tell(cell),
            _ => {}
        }
    }

    fn tell_all(&mut self) {
        for piece in &mut self.pieces {
            piece.is_told = true;
        }
    }

    pub fn piece(
        &mut self,
        view: &View<'_>,
        frame: &Frame,
        step: usize,
        (what, row): (What, super::piece_values::Row),
    ) -> CellId {
        let made = frame.called.unwrap_or_else(|| view.place(view.steps[step].id));
        let (reduced, used) = (Vec::new(), Vec::new());
        self.pieces.push(Piece { what, row, name: None, made, reduced, used, is_told: false });
        self.new_cell(Value::Piece(self.pieces.len() - 1))
    }

    /// A step takes a piece for that of all ranks.
    pub fn uses(&mut self, view: &View<'_>, frame: &Frame, step: usize, piece: PieceId) {
        let at = frame.called.unwrap_or_else(|| view.place(view.steps[step].id));
        let used = Used { at, within: view.at, tests: tests(view, frame, step) };
        self.pieces[piece].used.push(used);
    }

    pub fn operand(&mut self, view: &View<'_>, frame: &mut Frame, operand: &Operand) -> CellId {
        match operand {
            Operand::Const(value) => self.new_cell(Value::Const(value.clone())),
            Operand::Global(_) => self.new_cell(Value::Fresh),
            Operand::Local(local) => match frame.locals.get(local) {
                Some((cell, _)) => *cell,
                None => {
                    let cell = self.new_cell(Value::Fresh);
                    if !view.is_temp(*local) {
                        frame.locals.insert(*local, (cell, Vec::new()));
                    }
                    cell
                }
            },
        }
    }

    /// Binds a variable. What another branch, or none, has bound before is one of two values from here on.
    fn bind(&mut self, view: &View<'_>, frame: &mut Frame, step: usize, local: LocalId, cell: CellId) {
        let sides: Sides = view.steps[step].guards.iter().map(|g| (g.at.index() as u32, g.holds)).collect();
        let before = frame.locals.get(&local).filter(|(_, s)| *s != sides && sides.len() >= s.len()).map(|(c, _)| *c);
        let bound = match before {
            Some(before) if !self.holds_same(before, cell) => {
                for one in [before, cell] {
                    // What is only made of pieces is made of them either way.
                    if self.cells[one].value != Value::Fresh {
                        self.tell(one);
                    }
                }
                self.made_of(&[before, cell])
            }
            _ => cell,
        };
        self.call_by(view, frame, &Operand::Local(local), bound);
        frame.locals.insert(local, (bound, sides));
    }

    /// A piece goes by the name that it has in the function where all begins.
    fn call_by(&mut self, view: &View<'_>, frame: &Frame, operand: &Operand, cell: CellId) {
        // A function inside of this one may do anything with it.
        if near::local(operand).is_some_and(|local| view.func.locals()[local].kind == LocalKind::Cell) {
            self.tell(cell);
        }
        if let (Some(local), Value::Piece(piece)) = (near::local(operand), &self.cells[cell].value) {
            let named = &mut self.pieces[*piece].name;
            if !view.is_temp(local) && (frame.depth == 0 || named.is_none()) {
                *named = Some(view.local_name(local).clone());
            }
        }
    }

    fn holds_same(&self, a: CellId, b: CellId) -> bool {
        let (x, y) = (&self.cells[a].value, &self.cells[b].value);
        a == b || *x != Value::Fresh && x == y || row(&self.cells, a).is_some_and(|r| Some(r) == row(&self.cells, b))
    }

    /// What a collective does with the pieces that it is given.
    pub fn reduce<'a>(&mut self, view: &View<'a>, frame: &mut Frame, step: usize, call: &CollectiveCall<'a>) -> CellId {
        let Some(input) = call.input.map(|o| self.operand(view, frame, o)) else { return self.made_of(&[]) };
        let members = match &self.cells[input].value {
            Value::Pack(members) => members.clone(),
            _ => vec![input],
        };
        for member in members {
            let Value::Piece(piece) = self.cells[member].value else {
                self.tell(member);
                continue;
            };
            if call.rule.op != "all_reduce" {
                self.tell(member);
                continue;
            }
            let reduced = Reduced {
                at: view.place(view.steps[step].id),
                within: view.at,
                does: does(view, call),
                over: over(view, frame, call),
                tests: tests(view, frame, step),
            };
            self.pieces[piece].reduced.push(reduced);
        }
        if call.rule.op == "all_reduce" { input } else { self.made_of(&[input]) }
    }

    /// Follows a call of a function of the project.
    pub fn follow<'a>(&mut self, view: &View<'a>, frame: &mut Frame, step: usize, value: &'a Rvalue) -> Option<CellId> {
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        let (target, skipped) = target(view, value).filter(|_| frame.depth < MOST_DEPTH)?;
        let inner = near::shared(view, target);
        let starred = |a: &Arg| matches!(a.kind, ArgKind::Star | ArgKind::DoubleStar);
        if args.iter().any(starred)
            || inner.func.is_generator
            || inner.func.is_async
            || inner.func.kind != FuncKind::Function
        {
            return None;
        }
        let given: Vec<(LocalId, &Operand)> = args
            .iter()
            .enumerate()
            .map(|(at, arg)| {
                let param = match &arg.kind {
                    ArgKind::Keyword(name) => inner.func.params.iter().find(|p| p.name == *name)?,
                    _ => inner.func.params.get(at + skipped)?,
                };
                Some((param.local, &arg.value))
            })
            .collect::<Option<_>>()?;
        let called = frame.called.unwrap_or_else(|| view.place(view.steps[step].id));
        let around = tests(view, frame, step);
        let mut below = Frame { called: Some(called), around, depth: frame.depth + 1, ..Frame::default() };
        for (param, operand) in given {
            below.over.insert(param, group_over(view, frame, operand));
            let cell = self.operand(view, frame, operand);
            below.locals.insert(param, (cell, Vec::new()));
        }
        let returned = self.walk(&inner, &mut below);
        // A class that is derived may do more.
        if skipped > 0 {
            let of_arguments: Vec<PieceId> = args.iter().flat_map(|a| self.behind_operand(frame, &a.value)).collect();
            for piece in of_arguments {
                self.pieces[piece].is_told |= self.pieces[piece].reduced.is_empty();
            }
        }
        Some(returned.unwrap_or_else(|| self.made_of(&[])))
    }
}

/// The tests around a step, also around the calls that lead to it.
fn tests(view: &View<'_>, frame: &Frame, step: usize) -> Tests {
    let own = view.steps[step].guards.iter().map(|g| (view.text(view.part(g.at, 0)).to_string(), g.holds));
    frame.around.iter().cloned().chain(own).collect()
}

/// Whether an operand is the object that a method is called on: static methods have none.
pub fn is_own(view: &View<'_>, operand: &Operand) -> bool {
    near::is_self(view, operand) && view.func.params.first().is_some_and(|p| matches!(p.name.as_str(), "self" | "cls"))
}

/// The function of the project that a call calls, and how many of its parameters are not among the arguments.
fn target<'a>(view: &View<'a>, value: &'a Rvalue) -> Option<(FuncRef, usize)> {
    let found = match value {
        Rvalue::CallMethod { base, name, .. } if is_own(view, base) => near::own_method(view, name)?,
        _ => match (value, view.callee(value)) {
            (Rvalue::Call { callee, .. }, None) => near::function(view, callee)?,
            (_, path) => {
                let path = path?;
                match view.project.path(&path) {
                    Resolved::Func(at) => at,
                    _ => {
                        let (class, method) = path.rsplit_once('.')?;
                        let Resolved::Class(class) = view.project.path(class) else { return None };
                        view.project.own_method(class, method)?
                    }
                }
            }
        },
    };
    let func = view.project.func(found);
    let is_static = func.class.is_none() || near::decorators(view, found).any(|line| line.contains("staticmethod"));
    let of_self = matches!(value, Rvalue::CallMethod { base, .. } if is_own(view, base));
    if !is_static && !of_self || !near::decorators(view, found).all(|line| near::has_any(line, PLAIN)) {
        return None;
    }
    Some((found, usize::from(!is_static)))
}

fn does<'a>(view: &View<'a>, call: &CollectiveCall<'a>) -> Does {
    let Some(given) = view.operator(call) else { return Does::Sum };
    let expr = view.expr(given);
    let name = match &expr {
        Expr::Const(Const::Str(name)) => Some(Name::from(name.to_uppercase())),
        other => other.last_name().map(Name::from),
    };
    match name.as_deref() {
        Some("SUM") => Does::Sum,
        Some("MAX") => Does::Largest,
        Some(name @ ("AVG" | "MIN" | "PRODUCT")) => Does::Other(Name::from(name)),
        _ => Does::Unknown,
    }
}

fn over<'a>(view: &View<'a>, frame: &Frame, call: &CollectiveCall<'a>) -> Over {
    match call.group {
        Some(group) => group_over(view, frame, group),
        None if call.rule.default_group.is_empty() => Over::All,
        None => Over::Axes(call.rule.default_group.clone()),
    }
}

fn group_over(view: &View<'_>, frame: &Frame, group: &Operand) -> Over {
    if let Some(given) = near::local(group).and_then(|local| frame.over.get(&local)) {
        return given.clone();
    }
    of_group(view, &view.expr(group)).map_or(Over::Unknown, Over::Axes)
}
