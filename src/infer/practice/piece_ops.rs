//! What operations make of the pieces of a softmax. In: a step. Out: the cell of its result. Never: an operation that is not known: its result
//! is made of what it was given, and if it is none of tensors, that is told. Next: `piece_flow.rs`.

use super::near;
use super::piece_flow::{Flow, Frame, is_own};
use super::piece_values::{CellId, Form, Picked, Places, Row, Value, bounds, is_same, origin, row};
use super::pieces::What;
use super::view::View;
use crate::ir::{Arg, ArgKind, BinOp, BuildKind, CmpOp, Const, Rvalue, UnOp};
use crate::source::Name;

/// Methods that give the same tensor.
const VIEWS: &[&str] = &[
    "view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "view_as",
    "reshape_as",
    "expand",
    "expand_as",
    "flatten",
    "detach",
    "wait",
    "wait_tensor",
    "requires_grad_",
];
/// And those that give a copy, or may.
const COPIES: &[&str] = &[
    "clone",
    "contiguous",
    "float",
    "double",
    "half",
    "bfloat16",
    "to",
    "type_as",
    "long",
    "int",
    "bool",
    "cuda",
    "nan_to_num",
];
/// What a tensor is like, and what prints it.
const SHAPES: &[&str] = &["size", "dim", "numel", "nelement", "is_contiguous", "ndimension", "stride", "get_device"];
/// Methods that leave places among those of a part.
const BOUNDS: &[&str] = &["clamp", "clamp_", "clip", "clamp_min", "clamp_max", "clamp_min_", "clamp_max_"];

/// A call of an operation: its name, what it is called on, and its other arguments.
struct Op<'a> {
    name: Name,
    on: CellId,
    args: &'a [Arg],
}

impl Flow {
    /// What a step computes.
    pub fn operation<'a>(&mut self, view: &View<'a>, frame: &mut Frame, step: usize, value: &'a Rvalue) -> CellId {
        match value {
            Rvalue::Use(operand) => self.operand(view, frame, operand),
            Rvalue::Attr { base, name } => {
                let base = self.operand(view, frame, base);
                match (&self.cells[base].value, name.as_str()) {
                    (Value::Largest(piece), "values") => self.new_cell(Value::Piece(*piece)),
                    (_, "data") => base,
                    (_, "shape" | "device" | "dtype" | "ndim") => self.new_cell(Value::Member(base, name.clone())),
                    (Value::Fresh | Value::Member(..), _) => self.new_cell(Value::Member(base, name.clone())),
                    _ => self.made_of(&[base]),
                }
            }
            Rvalue::Item { base, index } => {
                let (base, at) = (self.operand(view, frame, base), self.operand(view, frame, index));
                self.item(base, at)
            }
            Rvalue::Call { .. } | Rvalue::CallMethod { .. } => self.call(view, frame, step, value),
            Rvalue::Unary { op, operand } => {
                let of = self.operand(view, frame, operand);
                match (op, &self.cells[of].value) {
                    (UnOp::Invert, Value::Mask { .. }) => self.other_side(of),
                    // A negative number.
                    (UnOp::Neg, Value::Const(Const::Int(n))) => self.new_cell(Value::Const(Const::Int(-n))),
                    _ => self.made_of(&[of]),
                }
            }
            Rvalue::Binary { op, left, right } => {
                let [left, right] = [left, right].map(|o| self.operand(view, frame, o));
                self.binary(view, frame, step, (*op, left, right))
            }
            Rvalue::InPlace { op, left, right } => {
                let [left, right] = [left, right].map(|o| self.operand(view, frame, o));
                let result = self.binary(view, frame, step, (*op, left, right));
                self.write(left, result);
                left
            }
            Rvalue::Compare { op, left, right } => {
                let [left, right] = [left, right].map(|o| self.operand(view, frame, o));
                self.new_cell(Value::Compare(*op, left, right))
            }
            Rvalue::Build { kind: BuildKind::Tuple | BuildKind::List, .. } => match near::items(value) {
                Some(all) => {
                    let all = all.into_iter().map(|o| self.operand(view, frame, o)).collect();
                    self.new_cell(Value::Tuple(all))
                }
                None => self.unknown(view, frame, step),
            },
            Rvalue::Build { kind: BuildKind::Slice, .. } => self.made_of(&[]),
            _ => self.unknown(view, frame, step),
        }
    }

    /// A step of which nothing is known: it has all that it reads.
    fn unknown(&mut self, view: &View<'_>, frame: &mut Frame, step: usize) -> CellId {
        let read: Vec<CellId> = view.reads(step).into_iter().map(|o| self.operand(view, frame, o)).collect();
        read.iter().for_each(|cell| self.tell(*cell));
        self.made_of(&read)
    }

    fn item(&mut self, base: CellId, at: CellId) -> CellId {
        let index = match self.cells[at].value {
            Value::Const(Const::Int(n)) => usize::try_from(n).ok(),
            _ => None,
        };
        let last = match &self.cells[at].value {
            Value::Tuple(all) => all.last().copied(),
            _ => None,
        };
        let makes_dim = match &self.cells[at].value {
            Value::Tuple(all) => all.iter().any(|c| self.cells[*c].value == Value::Const(Const::None)),
            _ => false,
        };
        match self.cells[base].value.clone() {
            Value::Largest(_) | Value::Tuple(_) | Value::Pack(_) => match index {
                Some(index) => self.part(base, index, None),
                None => self.made_of(&[base]),
            },
            Value::Piece(_) | Value::Log(_) | Value::Places(_) | Value::Mask { .. } if makes_dim => base,
            _ => match (row(&self.cells, base), last.map(|last| self.cells[last].value.clone())) {
                (Some(row), Some(Value::Places(places))) => self.new_cell(Value::Picked(Picked { row, places })),
                _ => self.made_of(&[base]),
            },
        }
    }

    /// One of several; `of`: how many there are, if that is known.
    pub fn part(&mut self, whole: CellId, at: usize, of: Option<usize>) -> CellId {
        match self.cells[whole].value.clone() {
            Value::Largest(piece) if at == 0 => self.new_cell(Value::Piece(piece)),
            Value::Tuple(all) | Value::Pack(all) if of.is_none_or(|n| n == all.len()) && at < all.len() => all[at],
            _ => self.made_of(&[whole]),
        }
    }

    pub fn set_item(
        &mut self,
        view: &View<'_>,
        frame: &Frame,
        step: usize,
        (base, at, value): (CellId, CellId, CellId),
    ) {
        let zero = self.is_zero(value);
        match (self.cells[base].value.clone(), self.cells[at].value.clone()) {
            (Value::Picked(picked), Value::Mask { places, inside: false })
                if zero && self.fits(picked.places, places) =>
            {
                let cell = self.piece(view, frame, step, (What::Entry, picked.row));
                self.write(base, cell);
            }
            (Value::Places(_), Value::Mask { .. }) if zero => {}
            _ => {
                // What is put into a tensor, or masked there, may be reduced with it.
                if matches!(self.cells[at].value, Value::Mask { .. }) {
                    self.tell(base);
                }
                self.tell_pieces_of(value);
                let cell = self.made_of(&[base, value]);
                self.tell_pieces_of(base);
                self.write(base, cell);
            }
        }
    }

    fn tell_pieces_of(&mut self, cell: CellId) {
        if matches!(self.cells[cell].value, Value::Piece(_) | Value::Pack(_) | Value::Tuple(_)) {
            self.tell(cell);
        }
    }

    fn is_zero(&self, cell: CellId) -> bool {
        matches!(&self.cells[cell].value, Value::Const(number) if number.is_number(0.0))
    }

    /// Whether a mask is of the same part as places. A part begins at a place of its own: at a number begins a whole.
    fn fits(&self, places: Places, mask: Places) -> bool {
        !matches!(self.cells[places.first].value, Value::Const(_))
            && is_same(&self.cells, places.target, mask.target, 0)
            && is_same(&self.cells, places.first, mask.first, 0)
    }

    fn other_side(&mut self, mask: CellId) -> CellId {
        match self.cells[mask].value {
            Value::Mask { places, inside } => self.new_cell(Value::Mask { places, inside: !inside }),
            _ => self.made_of(&[mask]),
        }
    }

    fn binary(
        &mut self,
        view: &View<'_>,
        frame: &mut Frame,
        step: usize,
        (op, l, r): (BinOp, CellId, CellId),
    ) -> CellId {
        let (left, right) = (self.cells[l].value.clone(), self.cells[r].value.clone());
        match (op, &left, &right) {
            (BinOp::Sub, ..) => self.less(view, frame, step, (l, r)),
            (BinOp::Add, Value::Log(_), Value::Piece(p)) if self.pieces[*p].what == What::Largest => l,
            (BinOp::Add, Value::Piece(p), Value::Log(_)) if self.pieces[*p].what == What::Largest => r,
            (BinOp::Mul, Value::Mask { .. }, _) => self.masked(view, frame, step, (r, l)),
            (BinOp::Mul, _, Value::Mask { .. }) => self.masked(view, frame, step, (l, r)),
            (BinOp::Div, Value::Row(Row { form: Form::Exponentials, .. }), Value::Piece(total)) => {
                self.uses(view, frame, step, *total);
                self.made_of(&[])
            }
            (BinOp::BitOr | BinOp::BitAnd, ..) => self.both(op == BinOp::BitAnd, l, r),
            (BinOp::Add | BinOp::Mul | BinOp::FloorDiv, ..)
                if self.behind(l).is_empty() && self.behind(r).is_empty() =>
            {
                self.new_cell(Value::Arith(op, l, r))
            }
            _ => self.made_of(&[l, r]),
        }
    }

    /// A mask of two comparisons, or one of them and something else that holds less often.
    fn both(&mut self, inside: bool, l: CellId, r: CellId) -> CellId {
        if let Some(places) = bounds(&self.cells, l, r, inside) {
            return self.new_cell(Value::Mask { places, inside });
        }
        let is_mask = |cell: &CellId| matches!(self.cells[*cell].value, Value::Mask { inside: i, .. } if i == inside);
        match [l, r].into_iter().find(is_mask) {
            Some(mask) => self.new_cell(self.cells[mask].value.clone()),
            None => self.made_of(&[l, r]),
        }
    }

    fn less(&mut self, view: &View<'_>, frame: &mut Frame, step: usize, (l, r): (CellId, CellId)) -> CellId {
        let what = |flow: &Flow, cell: CellId| match flow.cells[cell].value {
            Value::Piece(p) => Some((p, flow.pieces[p].what)),
            _ => None,
        };
        if let (Some(Row { of, by: None, form: Form::Plain }), Some((piece, What::Largest))) =
            (row(&self.cells, l), what(self, r))
        {
            if self.pieces[piece].row.of == of {
                self.uses(view, frame, step, piece);
                return self.new_cell(Value::Row(Row { of, by: Some(piece), form: Form::Plain }));
            }
            self.tell(r);
            return self.made_of(&[l, r]);
        }
        match (self.cells[l].value.clone(), self.cells[r].value.clone()) {
            (Value::Row(row @ Row { form: Form::Plain, .. }), Value::Log(total)) => {
                self.uses(view, frame, step, total);
                self.new_cell(Value::Row(Row { form: Form::LogShares(total), ..row }))
            }
            (Value::Piece(entry) | Value::Less(entry), Value::Log(total))
            | (Value::Log(total), Value::Piece(entry) | Value::Less(entry))
                if self.pieces[entry].what == What::Entry && self.pieces[entry].row.of == self.pieces[total].row.of =>
            {
                self.uses(view, frame, step, entry);
                self.made_of(&[l, r])
            }
            (Value::Piece(entry), Value::Piece(largest))
                if self.pieces[entry].what == What::Entry && self.pieces[largest].what == What::Largest =>
            {
                self.new_cell(Value::Less(entry))
            }
            // `1.0 - mask`
            (Value::Const(_), Value::Mask { .. }) => self.other_side(r),
            _ if self.behind(l).is_empty() && self.behind(r).is_empty() => {
                let places = Places { target: origin(&self.cells, l), first: r };
                self.new_cell(Value::Places(places))
            }
            _ => self.made_of(&[l, r]),
        }
    }

    /// A value with zeros where a mask of this part does not hold, as a copy.
    fn masked(&mut self, view: &View<'_>, frame: &Frame, step: usize, (of, inside): (CellId, CellId)) -> CellId {
        let Value::Mask { places, inside: holds } = self.cells[inside].value else {
            return self.made_of(&[of, inside]);
        };
        match self.cells[of].value.clone() {
            Value::Picked(picked) if holds && self.fits(picked.places, places) => {
                self.piece(view, frame, step, (What::Entry, picked.row))
            }
            value @ Value::Places(_) if holds => self.new_cell(value),
            _ => {
                self.tell(of);
                self.made_of(&[of])
            }
        }
    }

    fn call<'a>(&mut self, view: &View<'a>, frame: &mut Frame, step: usize, value: &'a Rvalue) -> CellId {
        if let Some(call) = view.collective(value) {
            return self.reduce(view, frame, step, &call);
        }
        let path = view.callee(value);
        let on_tensor = |flow: &mut Flow, frame: &mut Frame| match value {
            Rvalue::CallMethod { base, name, args } if path.as_ref().is_none_or(|p| p.starts_with('.')) => {
                Some(Op { name: name.clone(), on: flow.operand(view, frame, base), args })
            }
            Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
                let path = path.as_ref()?;
                let is_op = path.starts_with("torch.") && !path.starts_with("torch.distributed.")
                    || path.ends_with(".wait_tensor")
                    || matches!(path.as_str(), "int" | "float" | "builtins.int" | "builtins.float");
                let first = args.first().filter(|a| is_op && a.kind == ArgKind::Positional)?;
                let on = flow.operand(view, frame, &first.value);
                let name = match value {
                    Rvalue::CallMethod { name, .. } => name.clone(),
                    _ => Name::from(path.as_str().rsplit('.').next()?),
                };
                Some(Op { name, on, args: &args[1..] })
            }
            _ => None,
        };
        let own = matches!(value, Rvalue::CallMethod { base, .. } if is_own(view, base));
        let op = if own { None } else { on_tensor(self, frame) };
        if let Some(op) = op {
            return match self.known(view, frame, step, &op) {
                Some(cell) => cell,
                None => self.other(view, frame, step, (&op, value)),
            };
        }
        let prints = path.as_deref().is_some_and(|p| matches!(p, "print" | "builtins.print" | "len" | "builtins.len"));
        match self.follow(view, frame, step, value) {
            Some(cell) => cell,
            None if prints => self.made_of(&[]),
            None => self.unknown(view, frame, step),
        }
    }

    /// An operation that is not followed: one of tensors, or anything.
    fn other<'a>(
        &mut self,
        view: &View<'a>,
        frame: &mut Frame,
        step: usize,
        (op, value): (&Op<'_>, &'a Rvalue),
    ) -> CellId {
        let path = view.callee(value);
        let known = view.rules.tensor_method(&op.name).is_some()
            || path.is_some_and(|p| view.rules.op(&p).is_some())
            || op.name.starts_with("save_for_");
        let masks = |flow: &Flow, cell: CellId| matches!(flow.cells[cell].value, Value::Mask { .. });
        let read: Vec<CellId> = view.reads(step).into_iter().map(|o| self.operand(view, frame, o)).collect();
        // An object of which nothing is known may have a method of that name.
        let is_object =
            matches!(self.cells[op.on].value, Value::Fresh | Value::Member(..)) && self.behind(op.on).is_empty();
        let saves = op.name.starts_with("save_for_");
        if !known || !saves && (is_object || read.iter().any(|cell| masks(self, *cell))) {
            read.iter().for_each(|cell| self.tell(*cell));
        }
        let result = self.made_of(&read);
        if op.name.ends_with('_') {
            self.tell(op.on);
            self.write(op.on, result);
            return op.on;
        }
        result
    }

    /// What an operation that is followed gives.
    fn known<'a>(&mut self, view: &View<'a>, frame: &mut Frame, step: usize, op: &Op<'a>) -> Option<CellId> {
        let plain = op.name.trim_end_matches('_');
        let result = match plain {
            name if VIEWS.contains(&op.name.as_str()) || matches!(name, "squeeze" | "unsqueeze" | "detach") => op.on,
            name if COPIES.contains(&name) => self.copied(op.on),
            name if SHAPES.contains(&name) => self.new_cell(Value::Fresh),
            "max" | "amax" | "sum" => self.folded(view, frame, step, op)?,
            "exp" => match row(&self.cells, op.on)? {
                row @ Row { form: Form::Plain, .. } => {
                    self.new_cell(Value::Row(Row { form: Form::Exponentials, ..row }))
                }
                _ => return None,
            },
            "log" => match self.cells[op.on].value {
                Value::Piece(p) if self.pieces[p].what == What::Total => {
                    self.uses(view, frame, step, p);
                    self.new_cell(Value::Log(p))
                }
                _ => return None,
            },
            "sub" | "add" | "mul" | "div" | "logical_or" | "logical_and" | "bitwise_or" | "bitwise_and" => {
                let [Arg { kind: ArgKind::Positional, value }] = op.args else { return None };
                let other = self.operand(view, frame, value);
                self.binary(view, frame, step, (named(plain), op.on, other))
            }
            "logical_not" | "bitwise_not" => self.other_side(op.on),
            "lt" | "le" | "gt" | "ge" => {
                let other = self.operand(view, frame, &op.args.first()?.value);
                self.new_cell(Value::Compare(compared(plain), op.on, other))
            }
            name if BOUNDS.contains(&name) && matches!(self.cells[op.on].value, Value::Places(_)) => self.copied(op.on),
            "masked_fill" => {
                let [mask, value] = op.args else { return None };
                let [mask, value] = [mask, value].map(|a| self.operand(view, frame, &a.value));
                let inside = self.other_side(mask);
                if !self.is_zero(value) {
                    return None;
                }
                self.masked(view, frame, step, (op.on, inside))
            }
            "where" => self.chosen(view, frame, step, op)?,
            "gather" | "take_along_dim" => self.gathered(view, frame, op)?,
            "zeros_like" => self.new_cell(Value::Zeros),
            "cat" | "stack" | "concat" => self.packed(op.on)?,
            "split" | "chunk" | "unbind" | "tensor_split" => match &self.cells[op.on].value {
                Value::Pack(all) => self.new_cell(Value::Tuple(all.clone())),
                _ => return None,
            },
            _ => return None,
        };
        let out = op.args.iter().find(|a| matches!(&a.kind, ArgKind::Keyword(name) if name == "out"));
        if let Some(out) = out {
            let out = self.operand(view, frame, &out.value);
            self.write(out, result);
            return Some(out);
        }
        if op.name.ends_with('_') && result != op.on {
            self.write(op.on, result);
            return Some(op.on);
        }
        Some(result)
    }

    fn copied(&mut self, of: CellId) -> CellId {
        match row(&self.cells, of).filter(|_| !matches!(self.cells[of].value, Value::Places(_))) {
            Some(row) if self.behind(of).is_empty() => self.new_cell(Value::Row(row)),
            Some(_) => self.made_of(&[of]),
            None => self.new_cell(self.cells[of].value.clone()),
        }
    }

    /// The largest along the last dim, or the sum of exponentials along it.
    fn folded<'a>(&mut self, view: &View<'a>, frame: &mut Frame, step: usize, op: &Op<'a>) -> Option<CellId> {
        let dim = view.argument(op.args, 0, "dim")?;
        let dim = self.operand(view, frame, dim);
        if self.cells[dim].value != Value::Const(Const::Int(-1)) {
            return None;
        }
        let row = row(&self.cells, op.on)?;
        match (op.name.as_str(), row.form) {
            ("sum", Form::Exponentials) => Some(self.piece(view, frame, step, (What::Total, row))),
            ("max" | "amax", Form::Plain) if row.by.is_none() && self.behind(op.on).is_empty() => {
                let cell = self.piece(view, frame, step, (What::Largest, row));
                match self.cells[cell].value {
                    Value::Piece(piece) if op.name == "max" => Some(self.new_cell(Value::Largest(piece))),
                    _ => Some(cell),
                }
            }
            _ => None,
        }
    }

    /// `torch.where(outside, 0, entry)`, `entry.where(inside, 0)`
    fn chosen<'a>(&mut self, view: &View<'a>, frame: &mut Frame, step: usize, op: &Op<'a>) -> Option<CellId> {
        let [a, b] = op.args else { return None };
        let [a, b] = [a, b].map(|arg| self.operand(view, frame, &arg.value));
        // A method is called on what it chooses from.
        let (mask, yes, no) = match self.cells[op.on].value {
            Value::Mask { .. } => (op.on, a, b),
            _ => (a, op.on, b),
        };
        let zero = |flow: &Flow, cell: CellId| flow.is_zero(cell) || flow.cells[cell].value == Value::Zeros;
        if zero(self, no) {
            Some(self.masked(view, frame, step, (yes, mask)))
        } else if zero(self, yes) {
            let inside = self.other_side(mask);
            Some(self.masked(view, frame, step, (no, inside)))
        } else {
            None
        }
    }

    /// `row.gather(-1, places)`
    fn gathered<'a>(&mut self, view: &View<'a>, frame: &mut Frame, op: &Op<'a>) -> Option<CellId> {
        let gather = op.name == "gather";
        let dim = view.argument(op.args, usize::from(!gather), "dim")?;
        let index = view.argument(op.args, usize::from(gather), if gather { "index" } else { "indices" })?;
        let [dim, index] = [dim, index].map(|o| self.operand(view, frame, o));
        match (row(&self.cells, op.on)?, &self.cells[index].value) {
            (row, Value::Places(places)) if self.cells[dim].value == Value::Const(Const::Int(-1)) => {
                let places = *places;
                Some(self.new_cell(Value::Picked(Picked { row, places })))
            }
            _ => None,
        }
    }

    /// Several pieces in one tensor, which has copies of them.
    fn packed(&mut self, all: CellId) -> Option<CellId> {
        let Value::Tuple(all) = self.cells[all].value.clone() else { return None };
        if !all.iter().all(|cell| matches!(self.cells[*cell].value, Value::Piece(_))) {
            return None;
        }
        let copies = all.into_iter().map(|cell| self.new_cell(self.cells[cell].value.clone())).collect();
        Some(self.new_cell(Value::Pack(copies)))
    }
}

fn named(method: &str) -> BinOp {
    match method {
        "sub" => BinOp::Sub,
        "add" => BinOp::Add,
        "mul" => BinOp::Mul,
        "div" => BinOp::Div,
        "logical_or" | "bitwise_or" => BinOp::BitOr,
        _ => BinOp::BitAnd,
    }
}

fn compared(method: &str) -> CmpOp {
    match method {
        "lt" => CmpOp::Lt,
        "le" => CmpOp::Le,
        "gt" => CmpOp::Gt,
        _ => CmpOp::Ge,
    }
}
