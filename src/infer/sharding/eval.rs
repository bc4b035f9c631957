//! Operations: constants, sequences, attributes, comparisons. In: an operation. Out: its value. Never: a guess. Next: `call.rs`.

use super::run::Run;
use super::value::{AxisNames, Ids, Manual, Note, Tensor, Val};
use crate::ir::{BinOp, BuildKind, CmpOp, Const, Item, Operand, Rvalue, StmtId, UnOp};
use crate::source::{Name, Place};
use std::sync::Arc;

/// Longest sequence that is written out.
pub const MAX_ITEMS: usize = 65_536;

impl Run<'_> {
    pub fn rvalue(&mut self, id: StmtId, value: &Rvalue) -> Val {
        match value {
            Rvalue::Use(o) => self.operand(o),
            Rvalue::Attr { base, name } => {
                if name == "shape" {
                    self.is_tensor(base);
                }
                let base = self.operand(base);
                self.attribute(&base, name)
            }
            Rvalue::Item { base, index } => {
                let (base, index) = (self.operand(base), self.operand(index));
                item(&base, &index)
            }
            Rvalue::Call { callee, args } => {
                let callee = self.operand(callee);
                let args = self.given(args);
                self.call(id, &callee, &args)
            }
            Rvalue::CallMethod { base, name, args } => {
                if name == "size" && args.is_empty() {
                    self.is_tensor(base);
                }
                let base = self.operand(base);
                let args = self.given(args);
                self.method(id, &base, name, &args)
            }
            Rvalue::Unary { op, operand } => {
                let value = self.operand(operand);
                match (op, &value) {
                    (UnOp::Neg, Val::Const(Const::Int(n))) => n.checked_neg().map_or(Val::Unknown, Val::number),
                    (UnOp::Not, _) => truth(&value).map_or(Val::Unknown, |t| Val::Const(Const::Bool(!t))),
                    _ => Val::Unknown,
                }
            }
            Rvalue::Binary { op, left, right } => {
                let (left, right) = (self.operand(left), self.operand(right));
                binary(*op, &left, &right)
            }
            Rvalue::InPlace { op, left, right } => {
                let (left, right) = (self.operand(left), self.operand(right));
                if matches!(left, Val::List(_)) {
                    self.st.forget_list(&left);
                    return Val::Unknown;
                }
                match left {
                    Val::Tensor(_) => left,
                    _ => binary(*op, &left, &right),
                }
            }
            Rvalue::Compare { op, left, right } => {
                let (left, right) = (self.operand(left), self.operand(right));
                compare(*op, &left, &right).map_or(Val::Unknown, |t| Val::Const(Const::Bool(t)))
            }
            Rvalue::Build { kind, items } => self.build(*kind, items),
            Rvalue::Bool { operands, .. } => {
                self.lose(operands.iter());
                Val::Unknown
            }
            Rvalue::Yield(o) | Rvalue::Await(o) => {
                self.lose([o].into_iter());
                Val::Unknown
            }
            Rvalue::Closure { .. } | Rvalue::Opaque => Val::Unknown,
        }
    }

    fn lose<'o>(&mut self, operands: impl Iterator<Item = &'o Operand>) {
        for operand in operands {
            let value = self.operand(operand);
            self.leak(&value);
        }
    }

    fn build(&mut self, kind: BuildKind, items: &[Item]) -> Val {
        if !matches!(kind, BuildKind::Tuple | BuildKind::List) {
            self.lose(items.iter().map(|i| match i {
                Item::One(o) | Item::Star(o) => o,
            }));
            return Val::Unknown;
        }
        let mut out = Vec::with_capacity(items.len());
        for item in items {
            match item {
                Item::One(o) => out.push(self.operand(o)),
                Item::Star(o) => {
                    let value = self.operand(o);
                    match value.items() {
                        Some(items) => out.extend(items),
                        None => {
                            self.lose(items.iter().map(|i| match i {
                                Item::One(o) | Item::Star(o) => o,
                            }));
                            return Val::Unknown;
                        }
                    }
                }
            }
        }
        if kind == BuildKind::Tuple { Val::Tuple(out.into()) } else { Val::List(out.into()) }
    }

    pub fn attribute(&mut self, base: &Val, name: &Name) -> Val {
        match base {
            Val::Path(path) => Val::Path(Name::from(format!("{path}.{name}"))),
            Val::Module(path) => {
                let leads = self.project.path(&format!("{path}.{name}"));
                self.resolved(&leads)
            }
            Val::Object(object) => {
                if let Some(value) = self.st.objects.get(object).and_then(|o| o.get(name)) {
                    return value.clone();
                }
                self.bound(*object, name).unwrap_or(Val::Unknown)
            }
            Val::Layer(layer) => self.layer_parameter(*layer, name),
            Val::Mesh(mesh) => match (name.as_str(), &mesh.shape, &mesh.names) {
                ("mesh_shape", Some(shape), _) => Val::Tuple(shape.clone().into()),
                ("axis_names", _, AxisNames::Without) => Val::NONE,
                ("axis_names", _, AxisNames::Known(names)) => {
                    Val::Tuple(names.iter().map(|n| Val::Const(Const::Str(n.clone()))).collect())
                }
                _ => Val::Unknown,
            },
            Val::Tensor(tensor) => {
                let shape = self.st.tensors.get(tensor).and_then(|t| t.shape.clone());
                match (name.as_str(), shape) {
                    ("shape", Some(dims)) => sizes(&dims),
                    ("shape", None) => Val::Sizes(*tensor),
                    ("ndim", Some(dims)) => i64::try_from(dims.len()).map_or(Val::Unknown, Val::number),
                    _ => Val::Unknown,
                }
            }
            _ => Val::Unknown,
        }
    }

    /// `layer.weight`: always the same tensor.
    fn layer_parameter(&mut self, layer: super::value::Id, name: &Name) -> Val {
        let Some(known) = self.st.layers.get(&layer) else { return Val::Unknown };
        if let Some(tensor) = known.params.get(name) {
            return Val::Tensor(*tensor);
        }
        let (made, rule) = (known.made, known.rule.clone());
        let Some((_, sizes)) = rule.params.iter().find(|(n, _)| n == name) else { return Val::Unknown };
        if rule.params_when.iter().any(|(n, _)| n == name) && known.args.contains_key("bias") {
            return Val::Unknown;
        }
        let whole = |s: &Name| known.args.get(s).and_then(Val::int);
        // A name alone may be a whole shape: only names that are numbers tell the rank.
        let named = !sizes.iter().any(|s| s.starts_with('*'));
        let sure =
            named && sizes.iter().all(|s| known.args.get(s).is_none_or(|v| v.int().is_some() || *v == Val::Unknown));
        // A dim for each entry of the kernel: one with another number of entries makes a weight of another rank.
        let kernel = sizes.iter().filter(|s| *s == "?").count();
        let fits = kernel == 0 || known.args.values().filter_map(Val::items).all(|items| items.len() == kernel);
        let shape = (!sizes.is_empty() && sure && fits).then(|| sizes.iter().map(whole).collect());
        let tensor = self.tensor(made, shape, Note::Without, Manual::No);
        let Val::Tensor(at) = tensor else { return Val::Unknown };
        if let Some(known) = self.st.layers.get_mut(&layer) {
            known.params.insert(name.clone(), at);
        }
        Val::Tensor(at)
    }

    /// A tensor of its own.
    pub fn tensor(&mut self, made: Place, shape: Option<Vec<Option<i64>>>, note: Note, manual: Manual) -> Val {
        let id = self.id();
        self.st.tensors.insert(id, Tensor { made, shape, note, manual });
        Val::Tensor(id)
    }
}

/// The sizes of a tensor as a tuple.
pub fn sizes(dims: &[Option<i64>]) -> Val {
    Val::Tuple(dims.iter().map(|d| d.map_or(Val::Unknown, Val::number)).collect())
}

/// Whether a value is true.
pub fn truth(value: &Val) -> Option<bool> {
    match value {
        Val::Const(Const::Bool(b)) => Some(*b),
        Val::Const(Const::Int(n)) => Some(*n != 0),
        Val::Const(Const::None) => Some(false),
        Val::Const(Const::Str(s)) => Some(!s.is_empty()),
        Val::Mesh(_) => Some(true),
        _ => None,
    }
}

fn item(base: &Val, index: &Val) -> Val {
    let (Some(items), Some(at)) = (base.items(), index.int()) else { return Val::Unknown };
    let at = if at < 0 { i64::try_from(items.len()).ok().and_then(|n| n.checked_add(at)) } else { Some(at) };
    at.and_then(|at| usize::try_from(at).ok()).and_then(|at| items.get(at)).cloned().unwrap_or(Val::Unknown)
}

fn binary(op: BinOp, left: &Val, right: &Val) -> Val {
    if let (Some(a), Some(b)) = (left.int(), right.int()) {
        let value = match op {
            BinOp::Add => a.checked_add(b),
            BinOp::Sub => a.checked_sub(b),
            BinOp::Mul => a.checked_mul(b),
            BinOp::FloorDiv => a.checked_div_euclid(b).filter(|_| b > 0),
            BinOp::Mod => a.checked_rem_euclid(b).filter(|_| b > 0),
            BinOp::Pow => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
            _ => None,
        };
        return value.map_or(Val::Unknown, Val::number);
    }
    match (op, left, right) {
        (BinOp::Mul, Val::Devices(n), other) | (BinOp::Mul, other, Val::Devices(n)) => {
            other.int().and_then(|k| n.checked_mul(k)).filter(|n| *n > 0).map_or(Val::Unknown, Val::Devices)
        }
        (BinOp::Add, Val::Tuple(a), Val::Tuple(b)) => Val::Tuple(a.iter().chain(b.iter()).cloned().collect()),
        (BinOp::Add, Val::List(a), Val::List(b)) => Val::List(a.iter().chain(b.iter()).cloned().collect()),
        (BinOp::Mul, Val::Tuple(a), n) | (BinOp::Mul, n, Val::Tuple(a)) => {
            repeated(a, n).map_or(Val::Unknown, Val::Tuple)
        }
        (BinOp::Mul, Val::List(a), n) | (BinOp::Mul, n, Val::List(a)) => repeated(a, n).map_or(Val::Unknown, Val::List),
        _ => Val::Unknown,
    }
}

fn repeated(items: &Arc<[Val]>, times: &Val) -> Option<Arc<[Val]>> {
    let times = usize::try_from(times.int()?.max(0)).ok()?;
    (items.len().checked_mul(times)? <= MAX_ITEMS).then(|| (0..times).flat_map(|_| items.iter().cloned()).collect())
}

fn compare(op: CmpOp, left: &Val, right: &Val) -> Option<bool> {
    if let (CmpOp::Is | CmpOp::IsNot | CmpOp::Eq | CmpOp::Ne, Val::Const(Const::None)) = (op, right) {
        let none = match left {
            Val::Const(Const::None) => true,
            Val::Unknown | Val::Path(_) => return None,
            _ => false,
        };
        return Some(none == matches!(op, CmpOp::Is | CmpOp::Eq));
    }
    if let (Some(a), Some(b)) = (left.int(), right.int()) {
        return Some(match op {
            CmpOp::Eq => a == b,
            CmpOp::Ne => a != b,
            CmpOp::Lt => a < b,
            CmpOp::Le => a <= b,
            CmpOp::Gt => a > b,
            CmpOp::Ge => a >= b,
            _ => return None,
        });
    }
    match (left.string(), right.string(), op) {
        (Some(a), Some(b), CmpOp::Eq) => Some(a == b),
        (Some(a), Some(b), CmpOp::Ne) => Some(a != b),
        _ => None,
    }
}

/// The numbers of a value that is an array or sequence of them.
pub fn ids(value: &Val) -> Option<Ids> {
    match value {
        Val::Ids(ids) => Some(ids.clone()),
        Val::Tuple(items) | Val::List(items) => {
            items.iter().map(Val::int).collect::<Option<Vec<i64>>>().map(|all| Ids::Listed(all.into()))
        }
        _ => None,
    }
}
