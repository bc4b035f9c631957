//! Evaluation of the right-hand sides of statements. In: an [`Rvalue`] and the current world. Out: a value, or several worlds.
//! Never: typing rules. Next: `names.rs`, `items.rs`, `call.rs`.

use super::formula::{Atom, Formula};
use super::heap::{Cell, DictCell, ListCell};
use super::machine::{Eval, Machine};
use super::output::Reason;
use super::settings::{is_degree, is_size_of_ranks};
use super::value::{Boundary, Closure, Flavour, Method, Value};
use crate::ir::{Arg, ArgKind, BinOp, BuildKind, CmpOp, Const, FuncId, Item, Operand, Rvalue, StmtId, UnOp};
use crate::project::{ClassRef, FuncRef};
use crate::source::Name;
use crate::types::{Axis, AxisSet, AxisState, AxisType, LocalType};
use std::sync::Arc;

/// An argument of a call, evaluated, with the index of its place among the parts of the statement.
#[derive(Clone, Debug)]
pub struct CallArg {
    pub keyword: Option<Name>,
    pub value: Value,
    pub part: usize,
}

/// The arguments of a call. `open`: there may be more (`*args` or `**kwargs` that are not known).
#[derive(Clone, Debug, Default)]
pub struct CallArgs {
    pub args: Vec<CallArg>,
    pub open: bool,
}

impl CallArgs {
    pub fn of(values: Vec<Value>) -> CallArgs {
        let args = values.into_iter().map(|value| CallArg { keyword: None, value, part: 0 }).collect();
        CallArgs { args, open: false }
    }
    pub fn positional(&self, n: usize) -> Option<&Value> {
        self.args.iter().filter(|a| a.keyword.is_none()).nth(n).map(|a| &a.value)
    }
    pub fn keyword(&self, name: &str) -> Option<&Value> {
        self.args.iter().find(|a| a.keyword.as_deref() == Some(name)).map(|a| &a.value)
    }
    /// An argument by position or name.
    pub fn get(&self, n: usize, name: &str) -> Option<&Value> {
        self.keyword(name).or_else(|| self.positional(n))
    }
    #[must_use]
    pub fn with_first(&self, value: Value) -> CallArgs {
        let mut args = vec![CallArg { keyword: None, value, part: 0 }];
        args.extend(self.args.iter().cloned());
        CallArgs { args, open: self.open }
    }
    #[must_use]
    pub fn skip_first(&self) -> CallArgs {
        let at = self.args.iter().position(|a| a.keyword.is_none());
        let args = self.args.iter().enumerate().filter(|(i, _)| Some(*i) != at).map(|(_, a)| a.clone()).collect();
        CallArgs { args, open: self.open }
    }
}

impl Machine<'_> {
    pub fn rvalue(&mut self, id: StmtId, value: &Rvalue) -> Eval {
        let value = match value {
            Rvalue::Use(operand) | Rvalue::Await(operand) => self.operand(operand),
            Rvalue::Yield(operand) => {
                let value = self.operand(operand);
                if let Some(deriving) = &mut self.deriving {
                    deriving.yields.push(value);
                }
                Value::Unknown
            }
            Rvalue::Attr { base, name } => {
                let base = self.operand(base);
                return self.attr(id, &base, name);
            }
            Rvalue::Item { base, index } => {
                let (base, at) = (self.operand(base), self.operand(index));
                return match self.item(id, &base, &at) {
                    Eval::One(element) if self.deriving.is_some() => Eval::One(self.fixed_element(index, element)),
                    eval => eval,
                };
            }
            Rvalue::Call { callee, args } => {
                let callee = self.operand(callee);
                self.written_variables(&callee, None, args);
                let args = self.arguments(args);
                return self.evaluated_call(id, &callee, &args);
            }
            Rvalue::CallMethod { base, name, args } => {
                let base = self.operand(base);
                self.written_variables(&base, Some(name), args);
                let args = self.arguments(args);
                return self.evaluated_method(id, &base, name, &args);
            }
            Rvalue::Unary { op, operand } => {
                let operand = self.operand(operand);
                self.unary(id, *op, &operand)
            }
            Rvalue::Binary { op, left, right } => {
                let (left, right) = (self.operand(left), self.operand(right));
                self.binary(id, *op, &left, &right, false)
            }
            Rvalue::InPlace { op, left, right } => {
                let (left, right) = (self.operand(left), self.operand(right));
                self.binary(id, *op, &left, &right, true)
            }
            Rvalue::Compare { op, left, right } => {
                let (left, right) = (self.operand(left), self.operand(right));
                self.compare(id, *op, &left, &right)
            }
            Rvalue::Bool { and, operands } => {
                let values: Vec<Value> = operands.iter().map(|o| self.operand(o)).collect();
                self.boolean(*and, &values)
            }
            Rvalue::Build { kind, items } => self.build(*kind, items),
            Rvalue::Closure { func, defaults } => self.closure(*func, defaults, Flavour::Plain, None),
            Rvalue::Opaque => {
                self.lose(Reason::Opaque, "expression");
                Value::Unknown
            }
        };
        Eval::One(value)
    }

    /// `callee(args)`, with what names tell of groups, ranks and sizes where the body does not.
    fn evaluated_call(&mut self, id: StmtId, callee: &Value, args: &CallArgs) -> Eval {
        if let Some(group) = self.declared_by_call(id, callee) {
            return Eval::One(group);
        }
        if self.deriving.is_none() {
            let eval = self.call(id, callee, args);
            return self.asked_group(eval, None, callee, None, args);
        }
        let before = self.w.clone();
        let name = self.name_called(callee);
        let eval = self.call(id, callee, args);
        match self.asked_variable(&eval, None, callee, None, args) {
            Some(value) => Eval::One(value),
            None => self.derived_result(eval, before, None, &name, args),
        }
    }

    /// `base.name(args)`, likewise.
    fn evaluated_method(&mut self, id: StmtId, base: &Value, name: &Name, args: &CallArgs) -> Eval {
        if let Some(group) = self.declared_by_method(id, base, name) {
            return Eval::One(group);
        }
        if self.deriving.is_none() {
            let eval = self.call_method(id, base, name, args);
            return self.asked_group(eval, Some(base), &Value::Unknown, Some(name), args);
        }
        let before = self.w.clone();
        let eval = self.call_method(id, base, name, args);
        match self.asked_variable(&eval, Some(base), &Value::Unknown, Some(name), args) {
            Some(value) => Eval::One(value),
            None => self.derived_result(eval, before, Some(base), name, args),
        }
    }

    /// The last name of what is called.
    fn name_called(&self, callee: &Value) -> Name {
        match callee {
            Value::Sym(name) | Value::Path(name) => super::collective::short(name),
            Value::Closure(closure) => self.project.func(closure.func).name.clone(),
            _ => Name::default(),
        }
    }

    /// Evaluates arguments; known sequences and dicts are spread.
    pub fn arguments(&mut self, args: &[Arg]) -> CallArgs {
        let mut out = CallArgs::default();
        for (i, arg) in args.iter().enumerate() {
            let value = self.operand(&arg.value);
            let part = i + 1;
            match &arg.kind {
                ArgKind::Positional => out.args.push(CallArg { keyword: None, value, part }),
                ArgKind::Keyword(name) => out.args.push(CallArg { keyword: Some(name.clone()), value, part }),
                ArgKind::Star => match self.literal_items(&value) {
                    Some(items) => {
                        out.args.extend(items.into_iter().map(|value| CallArg { keyword: None, value, part }));
                    }
                    None if self.deriving.is_some() && self.holds_tensors(&value) => {
                        out.args.push(CallArg { keyword: None, value, part });
                    }
                    None => out.open = true,
                },
                ArgKind::DoubleStar => self.spread_dict(&value, part, &mut out),
            }
        }
        out
    }

    fn spread_dict(&mut self, value: &Value, part: usize, out: &mut CallArgs) {
        let Value::Dict(id) = value else {
            out.open = true;
            return;
        };
        let Some(Cell::Dict(dict)) = self.w.heap.get(*id) else { return };
        out.open |= dict.is_open();
        for (key, value) in &dict.entries {
            match key.as_str() {
                Some(name) => out.args.push(CallArg { keyword: Some(name.clone()), value: value.clone(), part }),
                None => out.open = true,
            }
        }
    }

    fn unary(&mut self, id: StmtId, op: UnOp, operand: &Value) -> Value {
        match (op, operand) {
            (UnOp::Not, value) if differing(value).is_some() => {
                Value::RankCond(differing(value).expect("the guard found axes"))
            }
            (UnOp::Not, Value::Unknown | Value::Tensor(_) | Value::Number(_) | Value::Share(_)) => Value::Unknown,
            (UnOp::Not, value) => {
                let formula = self.formula(value).negate();
                cond(formula)
            }
            (UnOp::Neg, Value::Const(Const::Int(n))) => Value::int(n.wrapping_neg()),
            (UnOp::Neg, Value::Const(Const::Float(bits))) => {
                Value::Const(Const::Float((-f64::from_bits(*bits)).to_bits()))
            }
            (_, value) if value.is_number() => self.negative(value),
            (UnOp::Neg, _) => self.operator(id, "neg", std::slice::from_ref(operand)),
            (UnOp::Pos, _) => self.operator(id, "pos", std::slice::from_ref(operand)),
            (UnOp::Invert, _) => self.operator(id, "invert", std::slice::from_ref(operand)),
        }
    }

    pub fn binary(&mut self, id: StmtId, op: BinOp, left: &Value, right: &Value, in_place: bool) -> Value {
        if let Some(value) = self.share(op, left, right).or_else(|| self.derived_binary(op, left, right)) {
            return value;
        }
        if let Some(value) = self.python_binary(op, left, right) {
            return value;
        }
        if let Some(value) = self.with_integer(op, left, right) {
            return value;
        }
        let name = operator_name(op);
        if in_place && self.is_tensor_like(left) {
            return self.operator(id, &format!("i{name}"), &[left.clone(), right.clone()]);
        }
        if self.is_tensor_like(left) || left.is_opaque() && !right.is_number() {
            return self.operator(id, name, &[left.clone(), right.clone()]);
        }
        if self.is_tensor_like(right) {
            return self.operator(id, &format!("r{name}"), &[right.clone(), left.clone()]);
        }
        Value::Unknown
    }

    /// Arithmetic between a number and an unknown value that is a number as well: by its annotation, its place in a configuration, or
    /// because nobody divides a tensor by the number of ranks without a remainder, nor a number by a tensor.
    fn with_integer(&mut self, op: BinOp, left: &Value, right: &Value) -> Option<Value> {
        let sizes = matches!(op, BinOp::FloorDiv | BinOp::Mod);
        let number = |v: &Value| v.is_number();
        let integer = |m: &Self, v: &Value| match v {
            Value::Sym(path) => m.symbol(path).is_none() && (m.annotated_other(path) || m.settings.is_config(path)),
            _ => false,
        };
        let symbol = |v: &Value| matches!(v, Value::Sym(_));
        let by_size =
            sizes && symbol(left) && matches!(right, Value::Size(_)) || sizes && number(left) && symbol(right);
        let known = number(left) && integer(self, right) || number(right) && integer(self, left) || by_size;
        let plain = |v: &Value| if v.is_number() { v.clone() } else { Value::Number(None) };
        // A number that differs by rank makes whatever it is combined with differ.
        let tainted = |a: &Value, b: &Value| differing(a).is_some() && matches!(b, Value::Unknown);
        let known = known || tainted(left, right) || tainted(right, left);
        known.then(|| self.arithmetic(&plain(left), &plain(right)))
    }

    /// Whether a value is a tensor, or may be one and has an identity.
    pub fn is_tensor_like(&self, value: &Value) -> bool {
        match value {
            Value::Tensor(_) => true,
            Value::Sym(path) => self.symbol(path).is_some() || !self.settings.is_config(path),
            _ => false,
        }
    }

    /// Operators of Python on numbers, strings and sequences.
    fn python_binary(&mut self, op: BinOp, left: &Value, right: &Value) -> Option<Value> {
        match (op, left, right) {
            (_, Value::Const(Const::Int(a)), Value::Const(Const::Int(b))) => Some(int_binary(op, *a, *b)),
            (BinOp::Add, Value::Const(Const::Str(a)), Value::Const(Const::Str(b))) => {
                Some(Value::str(format!("{a}{b}")))
            }
            (BinOp::Add, Value::Tuple(a), Value::Tuple(b)) => {
                Some(Value::tuple(a.iter().chain(b.iter()).cloned().collect()))
            }
            (BinOp::Add, Value::Tuple(a), Value::List(b)) if self.deriving.is_some() => {
                // As many gradients as there are: the last of the tuple stands for them.
                let rest = self.list_cell(*b)?.rest.is_some().then(|| right.clone())?;
                Some(Value::tuple(a.iter().cloned().chain([rest]).collect()))
            }
            (BinOp::Add, Value::List(a), Value::List(b)) => {
                let (a, b) = (self.list_cell(*a)?, self.list_cell(*b)?);
                let items = a.items.iter().chain(&b.items).cloned().collect();
                let rest = a.rest.or(b.rest);
                Some(Value::List(self.fresh(Cell::List(ListCell { items, rest }))))
            }
            (BinOp::Mul, Value::List(a), Value::Const(Const::Int(n))) => {
                let a = self.list_cell(*a)?;
                let n = usize::try_from(*n)
                    .ok()
                    .filter(|n| a.rest.is_none() && n * a.items.len() <= super::limits::MAX_LIST)?;
                let items = std::iter::repeat_n(a.items, n).flatten().collect();
                Some(Value::List(self.fresh(Cell::List(ListCell { items, rest: None }))))
            }
            (BinOp::Mul, Value::List(a), _) => {
                let a = self.list_cell(*a)?;
                let rest = a.items.first().cloned().or(a.rest);
                Some(Value::List(self.fresh(Cell::List(ListCell { items: Vec::new(), rest }))))
            }
            (BinOp::BitAnd | BinOp::BitOr | BinOp::BitXor, a, b) if is_truth(a) && is_truth(b) => {
                Some(self.boolean(op == BinOp::BitAnd, &[a.clone(), b.clone()]))
            }
            (BinOp::Pow, Value::Size(axes), Value::Const(Const::Int(-1))) => {
                Some(Value::Number(Some(Arc::new(share_of(axes)))))
            }
            (BinOp::Div, a, Value::Size(axes)) if a.is_number() && number_type(a).is_none() => {
                Some(Value::Number(Some(Arc::new(share_of(axes)))))
            }
            (_, a, b) if a.is_number() && b.is_number() => Some(self.arithmetic(a, b)),
            (BinOp::Mod, Value::Const(Const::Str(_)), _) => Some(Value::Unknown),
            _ => None,
        }
    }

    pub fn list_cell(&self, id: super::value::ObjId) -> Option<ListCell> {
        match self.w.heap.get(id) {
            Some(Cell::List(list)) => Some(list.clone()),
            _ => None,
        }
    }

    /// A number computed from numbers: it differs by rank where an operand does.
    pub fn arithmetic(&mut self, a: &Value, b: &Value) -> Value {
        let (x, y) = (number_type(a), number_type(b));
        Value::Number(match (x, y) {
            (None, None) => None,
            (Some(t), None) | (None, Some(t)) => Some(Arc::new(t)),
            (Some(x), Some(y)) => Some(Arc::new(x.join(&y))),
        })
    }

    fn compare(&mut self, id: StmtId, op: CmpOp, left: &Value, right: &Value) -> Value {
        let tensor = |v: &Value| match v {
            Value::Tensor(_) => true,
            Value::Sym(path) => self.symbol(path).is_some(),
            _ => false,
        };
        let values = !matches!(op, CmpOp::Is | CmpOp::IsNot | CmpOp::In | CmpOp::NotIn);
        if self.deriving.is_some() && values && (tensor(left) || tensor(right)) {
            let operands = if tensor(left) { [left.clone(), right.clone()] } else { [right.clone(), left.clone()] };
            return self.operator(id, "eq", &operands);
        }
        if let Some(value) = self.started(op, left, right).or_else(|| self.python_compare(op, left, right)) {
            return value;
        }
        let name = match op {
            CmpOp::Eq => "eq",
            CmpOp::Ne => "ne",
            CmpOp::Lt => "lt",
            CmpOp::Le => "le",
            CmpOp::Gt => "gt",
            CmpOp::Ge => "ge",
            CmpOp::In | CmpOp::NotIn => return self.membership(op == CmpOp::In, left, right).unwrap_or(Value::Unknown),
            CmpOp::Is | CmpOp::IsNot => return Value::Unknown,
        };
        if matches!(left, Value::Tensor(_)) {
            return self.operator(id, name, &[left.clone(), right.clone()]);
        }
        if matches!(right, Value::Tensor(_)) {
            return self.operator(id, mirrored(name), &[right.clone(), left.clone()]);
        }
        Value::Unknown
    }

    /// What the start of the program sets is there, and counts several ranks.
    fn started(&self, op: CmpOp, left: &Value, right: &Value) -> Option<Value> {
        let (Value::Sym(path), Value::Const(to)) = (left, right) else { return None };
        match (op, to) {
            (_, Const::None | Const::Int(1)) if !self.settings.resets.is_started(path) => None,
            (CmpOp::Is | CmpOp::Eq, Const::None) => Some(Value::Const(Const::Bool(false))),
            (CmpOp::IsNot | CmpOp::Ne, Const::None) => Some(Value::Const(Const::Bool(true))),
            (_, Const::Int(1)) => size_compare(op, 1),
            _ => None,
        }
    }

    pub(super) fn python_compare(&mut self, op: CmpOp, left: &Value, right: &Value) -> Option<Value> {
        let equal = matches!(op, CmpOp::Eq | CmpOp::Is);
        let negated = matches!(op, CmpOp::Ne | CmpOp::IsNot);
        if self.deriving.is_some()
            && let Some(value) = self.derived_compare(op, left, right)
        {
            return Some(value);
        }
        match (left, right) {
            (Value::Const(Const::Int(a)), Value::Const(Const::Int(b))) => {
                int_compare(op, *a, *b).map(|b| Value::Const(Const::Bool(b)))
            }
            (
                Value::Const(a @ (Const::Float(_) | Const::Int(_))),
                Value::Const(b @ (Const::Float(_) | Const::Int(_))),
            ) if !equal && !negated => float_compare(op, a, b).map(|b| Value::Const(Const::Bool(b))),
            (Value::Const(a), Value::Const(b)) if equal || negated => {
                Some(Value::Const(Const::Bool((a == b) == equal)))
            }
            (Value::Size(_), Value::Const(Const::Int(n))) => size_compare(op, *n),
            (Value::Const(Const::Int(n)), Value::Size(_)) => size_compare(flip(op), *n),
            (Value::Rank(axes) | Value::Edge(axes), _) | (_, Value::Rank(axes) | Value::Edge(axes)) => {
                Some(Value::RankCond(axes.clone()))
            }
            (n @ Value::Number(Some(_)), _) | (_, n @ Value::Number(Some(_))) => {
                Some(differing(n).map_or(Value::Unknown, Value::RankCond))
            }
            (Value::Sym(path), Value::Const(Const::Int(_))) | (Value::Const(Const::Int(_)), Value::Sym(path))
                if self.settings.is_rank(path) =>
            {
                // Not a flag: the ranks of a group that the name does not tell take different sides.
                Some(Value::RankCond(AxisSet::one(crate::types::Axis::variable(path))))
            }
            (Value::Path(a), Value::Path(b)) if (equal || negated) && same_parent(a, b) => {
                Some(Value::Const(Const::Bool((a == b) == equal)))
            }
            (Value::ReduceOp(a), Value::ReduceOp(b)) if equal || negated => {
                Some(Value::Const(Const::Bool((a == b) == equal)))
            }
            (Value::Sym(path), Value::Const(Const::None)) if equal || negated => {
                let name = self.flag_name(path);
                let f = Formula::Atom(Atom::IsNone(name));
                Some(cond(if equal { f } else { f.negate() }))
            }
            (Value::Sym(path), Value::Const(c)) | (Value::Const(c), Value::Sym(path)) if equal || negated => {
                let name = self.flag_name(path);
                let f = match c {
                    Const::Bool(b) if *b => Formula::Atom(Atom::True(name)),
                    Const::Bool(_) => Formula::Atom(Atom::True(name)).negate(),
                    c => Formula::Atom(Atom::Equals(name, c.clone())),
                };
                Some(cond(if equal { f } else { f.negate() }))
            }
            (Value::Sym(path), Value::Path(member)) | (Value::Path(member), Value::Sym(path)) if equal || negated => {
                let name = self.flag_name(path);
                // By the name of the member alone, as rules ask for it.
                let member = member.rsplit('.').next().unwrap_or(member);
                let f = Formula::Atom(Atom::Equals(name, Const::Str(Name::from(member))));
                Some(cond(if equal { f } else { f.negate() }))
            }
            (Value::Sym(path), Value::Const(Const::Int(n))) => {
                // A degree of parallelism compared with 1: axes are checked as if they had several ranks.
                let last = path.rsplit('.').next().unwrap_or(path);
                if is_degree(last) || *n == 1 && (self.settings.counts_ranks(last) || is_size_of_ranks(path)) {
                    return size_compare(op, *n);
                }
                let sign = order_sign(op).filter(|_| self.symbol(path).is_none())?;
                let name = Name::from(format!("{} {sign} {n}", self.flag_name(path)));
                Some(cond(Formula::Atom(Atom::True(name))))
            }
            (value, Value::Const(Const::None)) if equal || negated => {
                let known_some = !matches!(value, Value::Unknown | Value::Unset | Value::Sym(_) | Value::Cond(_));
                known_some.then_some(Value::Const(Const::Bool(negated)))
            }
            _ => None,
        }
    }

    fn boolean(&mut self, and: bool, values: &[Value]) -> Value {
        let mut axes: Vec<crate::types::Axis> = Vec::new();
        for v in values {
            if let Value::RankCond(a) = v {
                axes.extend(a.iter().cloned());
            }
        }
        let decided = values.iter().any(|v| matches!(v, Value::Const(c) if super::formula::truth(c) == Some(!and)));
        if decided {
            // `x and None`: the first operand that decides is the value.
            let at = values.iter().find(|v| matches!(v, Value::Const(c) if super::formula::truth(c) == Some(!and)));
            if values.iter().all(is_truth) {
                return at.cloned().unwrap_or(Value::Unknown);
            }
        }
        if !axes.is_empty() {
            return Value::RankCond(axes.into_iter().collect());
        }
        if let Some(group) = self.group_or_all(and, values) {
            return group;
        }
        // The last operand is the value where none before decides; of those before only the truth counts.
        let flag = |v: &Value| is_truth(v) || matches!(v, Value::Sym(_));
        let testable = |v: &Value| flag(v) || matches!(v, Value::Unknown | Value::Number(None) | Value::Share(_));
        let tested = |v: &Value| testable(v) || v.is_number() || matches!(v, Value::Tensor(_));
        let mixed = values.iter().any(is_truth) && values.iter().all(testable)
            || values.split_last().is_some_and(|(last, before)| flag(last) && before.iter().all(tested));
        if !(values.iter().all(flag) || mixed) {
            return self.chosen(and, values);
        }
        let items = values.iter().map(|v| self.formula(v)).collect();
        cond(if and { Formula::And(items) } else { Formula::Or(items) })
    }

    /// `x or y` on values that are no booleans: known if the first decides.
    fn chosen(&mut self, and: bool, values: &[Value]) -> Value {
        let mut values = values.iter();
        let Some(mut value) = values.next() else { return Value::Unknown };
        for next in values {
            match self.settled(value) {
                Some(truth) if truth != and => return value.clone(),
                Some(_) => value = next,
                None => return Value::Unknown,
            }
        }
        value.clone()
    }

    fn build(&mut self, kind: BuildKind, items: &[Item]) -> Value {
        match kind {
            BuildKind::Slice => {
                let mut parts = [Value::NONE, Value::NONE, Value::NONE];
                for (slot, item) in parts.iter_mut().zip(items) {
                    if let Item::One(operand) = item {
                        *slot = self.operand(operand);
                    }
                }
                Value::Slice(Arc::new(parts))
            }
            BuildKind::Str => self.path_text(items),
            BuildKind::Dict => self.build_dict(items),
            BuildKind::Tuple | BuildKind::List | BuildKind::Set => {
                let mut cell = ListCell::default();
                for item in items {
                    match item {
                        Item::One(operand) => cell.items.push(self.operand(operand)),
                        Item::Star(operand) => {
                            let value = self.operand(operand);
                            match self.literal_items(&value) {
                                Some(more) => cell.items.extend(more),
                                None => cell.rest = Some(self.element_of(&value)),
                            }
                        }
                    }
                }
                match (kind, &cell.rest) {
                    (BuildKind::Tuple, None) => Value::tuple(cell.items),
                    (BuildKind::Tuple, Some(_)) => Value::Unknown,
                    _ => Value::List(self.fresh(Cell::List(cell))),
                }
            }
        }
    }

    fn build_dict(&mut self, items: &[Item]) -> Value {
        let mut dict = DictCell::default();
        let mut key = None;
        for item in items {
            match item {
                Item::One(operand) => {
                    let value = self.operand(operand);
                    match key.take() {
                        None => key = Some(value),
                        Some(k) => dict.set(k, value),
                    }
                }
                Item::Star(operand) => {
                    let value = self.operand(operand);
                    let other = match &value {
                        Value::Dict(id) => self.w.heap.get(*id).cloned(),
                        _ => None,
                    };
                    match other {
                        Some(Cell::Dict(other)) => dict.extend(other),
                        _ => dict.open(),
                    }
                }
            }
        }
        Value::Dict(self.fresh(Cell::Dict(dict)))
    }

    /// A function value with its captured variables.
    pub fn closure(
        &mut self,
        func: FuncId,
        defaults: &[(u32, Operand)],
        flavour: Flavour,
        boundary: Option<Arc<Boundary>>,
    ) -> Value {
        let module = self.activation().module;
        let func = FuncRef { module, func };
        let captures = self.project.func(func).captures.clone();
        let cells = captures.iter().map(|(outer, _)| self.cell_of(*outer)).collect();
        let defaults = defaults.iter().map(|(i, o)| (*i, self.operand(o))).collect();
        Value::Closure(Arc::new(Closure { func, cells, defaults, flavour, boundary }))
    }

    /// A `def` statement: decorators that are known to be transparent leave the function, others make it unknown.
    pub fn define(&mut self, id: StmtId, func: FuncId, defaults: &[(u32, Operand)], decorators: &[Operand]) -> Value {
        self.decorated_region(id, func, defaults, decorators);
        let mut flavour = Flavour::Plain;
        let (mut transparent, mut boundary) = (true, None);
        for decorator in decorators.iter().rev() {
            let value = self.operand(decorator);
            if let Some(declared) = value.as_boundary().filter(|_| boundary.is_none()) {
                boundary = Some(declared.clone());
                continue;
            }
            match self.decorator(&value) {
                Some(Flavour::Plain) => {}
                Some(f) => flavour = f,
                None => transparent = false,
            }
        }
        let value = self.closure(func, defaults, flavour, boundary);
        if transparent { value } else { Value::Unknown }
    }

    pub fn define_class(&mut self, class: crate::ir::ClassId, bases: &[Operand], decorators: &[Operand]) -> Value {
        for operand in bases.iter().chain(decorators) {
            self.operand(operand);
        }
        Value::Class(ClassRef { module: self.activation().module, class })
    }

    pub fn named_method(receiver: Value, name: &Name) -> Value {
        Value::Bound(Arc::new(super::value::Bound { receiver, method: Method::Named(name.clone()) }))
    }
}

/// A formula as a value; a decided one is a constant.
pub fn cond(formula: Formula) -> Value {
    match formula {
        Formula::Const(b) => Value::Const(Const::Bool(b)),
        f => Value::Cond(Arc::new(f)),
    }
}

fn order_sign(op: CmpOp) -> Option<&'static str> {
    match op {
        CmpOp::Lt => Some("<"),
        CmpOp::Le => Some("<="),
        CmpOp::Gt => Some(">"),
        CmpOp::Ge => Some(">="),
        CmpOp::Eq | CmpOp::Ne | CmpOp::Is | CmpOp::IsNot | CmpOp::In | CmpOp::NotIn => None,
    }
}

/// Whether two paths are members of one class: those of an enumeration are equal or different by name.
fn same_parent(a: &str, b: &str) -> bool {
    a.rsplit_once('.').map(|(head, _)| head) == b.rsplit_once('.').map(|(head, _)| head)
}

/// What a number is on the ranks, where it is not the same on all of them.
pub fn number_type(v: &Value) -> Option<LocalType> {
    let on = |axes: &AxisSet, set: AxisType| {
        // The ranks of a group that nothing resolves may be those of any other one.
        let any = axes.iter().any(Axis::is_variable);
        let elsewhere = AxisState::new(if any { AxisType::R.join(AxisType::V) } else { AxisType::R });
        let mut t = LocalType::everywhere(elsewhere);
        for axis in axes.iter() {
            t.set(axis, AxisState::new(set));
        }
        t
    };
    match v {
        Value::Rank(axes) | Value::Edge(axes) => Some(on(axes, AxisType::V)),
        // 1 on some ranks, 0 on the others: it differs, and it may be meant as one term of a sum.
        Value::RankCond(axes) => Some(on(axes, AxisType::V.join(AxisType::P))),
        Value::Number(Some(t)) => Some(t.as_ref().clone()),
        _ => None,
    }
}

/// The axes over whose ranks a test differs.
pub fn differing(test: &Value) -> Option<AxisSet> {
    match test {
        Value::RankCond(axes) | Value::Rank(axes) | Value::Edge(axes) => Some(axes.clone()),
        Value::Number(Some(t)) => {
            let varies = |s: &AxisState| s.set.contains(crate::types::Spmd::Varying);
            let axes: AxisSet = t.listed().filter(|(_, s)| varies(s)).map(|(a, _)| a.clone()).collect();
            (!axes.is_empty()).then_some(axes)
        }
        _ => None,
    }
}

/// `1 / size`: the same on all ranks, and a term of a sum that is 1.
pub fn share_of(axes: &AxisSet) -> LocalType {
    let share = AxisState::new(AxisType::R.join(AxisType::P));
    let known = axes.iter().all(|a| !a.is_variable());
    let mut t = LocalType::everywhere(if known { AxisState::new(AxisType::R) } else { share.clone() });
    for axis in axes.iter() {
        t.set(axis, share.clone());
    }
    t
}

fn is_truth(v: &Value) -> bool {
    matches!(v, Value::Const(Const::Bool(_) | Const::None) | Value::Cond(_) | Value::RankCond(_))
}

/// The Python name of a binary operator, without underscores.
fn operator_name(op: BinOp) -> &'static str {
    match op {
        BinOp::Add => "add",
        BinOp::Sub => "sub",
        BinOp::Mul => "mul",
        BinOp::MatMul => "matmul",
        BinOp::Div => "truediv",
        BinOp::FloorDiv => "floordiv",
        BinOp::Mod => "mod",
        BinOp::Pow => "pow",
        BinOp::LShift => "lshift",
        BinOp::RShift => "rshift",
        BinOp::BitAnd => "and",
        BinOp::BitOr => "or",
        BinOp::BitXor => "xor",
    }
}

fn mirrored(name: &'static str) -> &'static str {
    match name {
        "lt" => "gt",
        "le" => "ge",
        "gt" => "lt",
        "ge" => "le",
        other => other,
    }
}

fn flip(op: CmpOp) -> CmpOp {
    match op {
        CmpOp::Lt => CmpOp::Gt,
        CmpOp::Le => CmpOp::Ge,
        CmpOp::Gt => CmpOp::Lt,
        CmpOp::Ge => CmpOp::Le,
        CmpOp::Eq | CmpOp::Ne | CmpOp::Is | CmpOp::IsNot | CmpOp::In | CmpOp::NotIn => op,
    }
}

/// The order of numbers of which one is no integer.
fn float_compare(op: CmpOp, a: &Const, b: &Const) -> Option<bool> {
    let number = |c: &Const| match c {
        Const::Int(n) => i32::try_from(*n).ok().map(f64::from),
        Const::Float(bits) => Some(f64::from_bits(*bits)).filter(|v| v.is_finite()),
        _ => None,
    };
    let (a, b) = (number(a)?, number(b)?);
    Some(match op {
        CmpOp::Lt => a < b,
        CmpOp::Le => a <= b,
        CmpOp::Gt => a > b,
        CmpOp::Ge => a >= b,
        CmpOp::Eq | CmpOp::Ne | CmpOp::Is | CmpOp::IsNot | CmpOp::In | CmpOp::NotIn => return None,
    })
}

pub fn int_compare(op: CmpOp, a: i64, b: i64) -> Option<bool> {
    Some(match op {
        CmpOp::Eq | CmpOp::Is => a == b,
        CmpOp::Ne | CmpOp::IsNot => a != b,
        CmpOp::Lt => a < b,
        CmpOp::Le => a <= b,
        CmpOp::Gt => a > b,
        CmpOp::Ge => a >= b,
        CmpOp::In | CmpOp::NotIn => return None,
    })
}

/// The number of ranks of a group compared with a constant, known only to be more than one.
fn size_compare(op: CmpOp, n: i64) -> Option<Value> {
    let truth = match (op, n) {
        (CmpOp::Gt, ..=1) | (CmpOp::Ge, ..=2) | (CmpOp::Ne, ..=1) => Some(true),
        (CmpOp::Eq | CmpOp::Le, ..=1) | (CmpOp::Lt, ..=2) => Some(false),
        _ => None,
    };
    Some(truth.map_or(Value::Unknown, |b| Value::Const(Const::Bool(b))))
}

fn int_binary(op: BinOp, a: i64, b: i64) -> Value {
    let float = |x: f64| Value::Const(Const::Float(x.to_bits()));
    let checked = |n: Option<i64>| n.map_or(Value::Number(None), Value::int);
    match op {
        BinOp::Add => checked(a.checked_add(b)),
        BinOp::Sub => checked(a.checked_sub(b)),
        BinOp::Mul => checked(a.checked_mul(b)),
        BinOp::Div if b != 0 => float(a as f64 / b as f64),
        BinOp::FloorDiv if b != 0 => checked(a.checked_div_euclid(b)),
        BinOp::Mod if b != 0 => checked(a.checked_rem_euclid(b)),
        BinOp::Pow => checked(u32::try_from(b).ok().and_then(|b| a.checked_pow(b))),
        BinOp::LShift => checked(u32::try_from(b).ok().and_then(|b| a.checked_shl(b))),
        BinOp::RShift => checked(u32::try_from(b).ok().and_then(|b| a.checked_shr(b))),
        BinOp::BitAnd => Value::int(a & b),
        BinOp::BitOr => Value::int(a | b),
        BinOp::BitXor => Value::int(a ^ b),
        BinOp::MatMul | BinOp::Div | BinOp::FloorDiv | BinOp::Mod => Value::Number(None),
    }
}
