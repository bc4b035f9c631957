//! Values of a rehearsal: numbers, lists and groups of ranks, as one rank has them. In: nothing. Out: [`Val`] and its arithmetic.
//! Never: tensors; whatever is not known is [`Val::Unknown`]. Source: The Python Language Reference, 6 (floor division and remainder
//! round towards minus infinity). Next: `run.rs`.

use crate::ir::{BinOp, CmpOp, Const, LocalId};
use crate::project::{ClassRef, FuncRef, ModuleId};
use crate::source::{Name, Place};
use std::cell::RefCell;
use std::rc::Rc;

/// The longest list, and the longest string, that is followed.
pub const LONGEST: usize = 1024;

/// How deep lists are compared.
const MOST_NESTED: usize = 6;

pub type Shared<T> = Rc<RefCell<T>>;

#[derive(Clone, Debug)]
pub enum Val {
    Unknown,
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Str(Name),
    List(Shared<Vec<Val>>),
    Tuple(Rc<[Val]>),
    Dict(Shared<Vec<(Val, Val)>>),
    Slice(Rc<[Val]>),
    Group(Rc<Group>),
    Func(Rc<Closure>),
    Class(ClassRef),
    Object(Shared<Object>),
    /// A method with its object.
    Bound(Rc<(Val, FuncRef)>),
    /// An object, as what the bases of a class make of it.
    Super(Rc<(Val, ClassRef)>),
    Module(ModuleId),
    /// Something outside the project, by qualified path.
    Path(Name),
}

/// A process group.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    pub ranks: Vec<i64>,
    /// The call that makes it; `None`: it was there before.
    pub made: Option<Place>,
}

/// A function with what it captures: its local, and the variable.
#[derive(Debug)]
pub struct Closure {
    pub at: FuncRef,
    pub defaults: Vec<(u32, Val)>,
    pub cells: Vec<(LocalId, Shared<Val>)>,
}

#[derive(Debug)]
pub struct Object {
    pub class: ClassRef,
    pub attrs: Vec<(Name, Val)>,
}

impl Val {
    pub fn list(items: Vec<Val>) -> Val {
        Val::List(Rc::new(RefCell::new(items)))
    }

    pub fn constant(c: &Const) -> Val {
        match c {
            Const::None => Val::None,
            Const::Bool(b) => Val::Bool(*b),
            Const::Int(i) => Val::Int(*i),
            Const::Float(bits) => Val::Float(f64::from_bits(*bits)),
            Const::Str(s) => Val::Str(s.clone()),
            Const::Ellipsis => Val::Unknown,
        }
    }

    /// An integer; `True` is 1.
    pub fn int(&self) -> Option<i64> {
        match self {
            Val::Int(i) => Some(*i),
            Val::Bool(b) => Some(i64::from(*b)),
            _ => None,
        }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Val::Float(f) => Some(*f),
            #[expect(clippy::cast_precision_loss, reason = "numbers of ranks are small")]
            other => other.int().map(|i| i as f64),
        }
    }

    /// What an iteration goes through.
    pub fn items(&self) -> Option<Vec<Val>> {
        match self {
            Val::List(items) => Some(items.borrow().clone()),
            Val::Tuple(items) => Some(items.to_vec()),
            Val::Dict(entries) => Some(entries.borrow().iter().map(|(k, _)| k.clone()).collect()),
            Val::Str(s) => Some(s.chars().map(|c| Val::Str(Name::from(c.to_string()))).collect()),
            _ => None,
        }
    }

    /// Ranks, where all of them are known.
    pub fn ranks(&self) -> Option<Vec<i64>> {
        self.items()?.iter().map(Val::int).collect()
    }

    /// Whether it is true; `None`: not known.
    pub fn truth(&self) -> Option<bool> {
        match self {
            Val::None => Some(false),
            Val::Bool(b) => Some(*b),
            Val::Int(i) => Some(*i != 0),
            Val::Float(f) => Some(*f != 0.0),
            Val::Str(s) => Some(!s.is_empty()),
            Val::List(items) => Some(!items.borrow().is_empty()),
            Val::Tuple(items) => Some(!items.is_empty()),
            Val::Dict(entries) => Some(!entries.borrow().is_empty()),
            Val::Group(_) | Val::Func(_) | Val::Class(_) | Val::Module(_) | Val::Bound(_) | Val::Super(_) => Some(true),
            Val::Unknown | Val::Slice(_) | Val::Object(_) | Val::Path(_) => None,
        }
    }

    /// Whether two values are equal; `None`: not known.
    pub fn equals(&self, other: &Val) -> Option<bool> {
        self.equals_within(other, MOST_NESTED)
    }

    fn equals_within(&self, other: &Val, depth: usize) -> Option<bool> {
        if let (Some(a), Some(b)) = (self.float(), other.float()) {
            return Some(a == b);
        }
        match (self, other) {
            (Val::Str(a), Val::Str(b)) => Some(a == b),
            (Val::None, Val::None) => Some(true),
            (Val::Group(a), Val::Group(b)) => Some(Rc::ptr_eq(a, b) || a == b),
            (Val::List(_), Val::List(_)) | (Val::Tuple(_), Val::Tuple(_)) => {
                let depth = depth.checked_sub(1)?;
                let (a, b) = (self.items()?, other.items()?);
                if a.len() != b.len() {
                    return Some(false);
                }
                let each: Vec<Option<bool>> = a.iter().zip(&b).map(|(a, b)| a.equals_within(b, depth)).collect();
                match each.contains(&Some(false)) {
                    true => Some(false),
                    false => each.iter().all(Option::is_some).then_some(true),
                }
            }
            (Val::Unknown, _) | (_, Val::Unknown) => None,
            (Val::None, Val::Path(_)) | (Val::Path(_), Val::None) => None,
            // Nothing else is None.
            (Val::None, _) | (_, Val::None) => Some(false),
            (Val::Str(_), other) | (other, Val::Str(_)) if other.float().is_some() => Some(false),
            _ => None,
        }
    }

    /// `left op right` of a comparison.
    pub fn compare(op: CmpOp, left: &Val, right: &Val) -> Option<bool> {
        let order = || left.float()?.partial_cmp(&right.float()?);
        match op {
            CmpOp::Eq => left.equals(right),
            CmpOp::Ne => left.equals(right).map(|b| !b),
            CmpOp::Is => left.is_same(right),
            CmpOp::IsNot => left.is_same(right).map(|b| !b),
            CmpOp::Lt => order().map(|o| o.is_lt()),
            CmpOp::Le => order().map(|o| o.is_le()),
            CmpOp::Gt => order().map(|o| o.is_gt()),
            CmpOp::Ge => order().map(|o| o.is_ge()),
            CmpOp::In => right.holds(left),
            CmpOp::NotIn => right.holds(left).map(|b| !b),
        }
    }

    /// Whether two values are one; known of None, True and False, of which there is one each.
    fn is_same(&self, other: &Val) -> Option<bool> {
        let single = |v: &Val| matches!(v, Val::None | Val::Bool(_));
        (single(self) || single(other)).then(|| self.equals(other)).flatten()
    }

    fn holds(&self, item: &Val) -> Option<bool> {
        if let (Val::Str(whole), Val::Str(part)) = (self, item) {
            return Some(whole.contains(part.as_str()));
        }
        let each: Vec<Option<bool>> = self.items()?.iter().map(|v| v.equals(item)).collect();
        match each.contains(&Some(true)) {
            true => Some(true),
            false => each.iter().all(Option::is_some).then_some(false),
        }
    }

    /// `left op right`; `None`: Python raises.
    pub fn binary(op: BinOp, left: &Val, right: &Val) -> Option<Val> {
        if let (Some(a), Some(b)) = (left.int(), right.int()) {
            return integers(op, a, b);
        }
        if let (Some(a), Some(b)) = (left.float(), right.float()) {
            return Some(match op {
                BinOp::Add => Val::Float(a + b),
                BinOp::Sub => Val::Float(a - b),
                BinOp::Mul => Val::Float(a * b),
                BinOp::Div if b != 0.0 => Val::Float(a / b),
                BinOp::FloorDiv if b != 0.0 => Val::Float((a / b).floor()),
                _ => Val::Unknown,
            });
        }
        Some(match (op, left, right) {
            (BinOp::Add, Val::List(a), Val::List(b)) if a.borrow().len() + b.borrow().len() <= LONGEST => {
                Val::list(a.borrow().iter().chain(b.borrow().iter()).cloned().collect())
            }
            (BinOp::Add, Val::Tuple(a), Val::Tuple(b)) if a.len() + b.len() <= LONGEST => {
                Val::Tuple(a.iter().chain(b.iter()).cloned().collect())
            }
            (BinOp::Add, Val::Str(a), Val::Str(b)) if a.len() + b.len() <= LONGEST => {
                Val::Str(Name::from(format!("{a}{b}")))
            }
            (BinOp::Mul, Val::List(items), n) | (BinOp::Mul, n, Val::List(items)) => match n.int() {
                Some(n @ 0..=64) if items.borrow().len() <= LONGEST / 64 => {
                    let items = items.borrow();
                    Val::list((0..n).flat_map(|_| items.iter().cloned()).collect())
                }
                _ => Val::Unknown,
            },
            _ => Val::Unknown,
        })
    }
}

/// Arithmetic of integers; `None`: Python raises.
fn integers(op: BinOp, a: i64, b: i64) -> Option<Val> {
    let known = |n: Option<i64>| Some(n.map_or(Val::Unknown, Val::Int));
    match op {
        BinOp::Add => known(a.checked_add(b)),
        BinOp::Sub => known(a.checked_sub(b)),
        BinOp::Mul => known(a.checked_mul(b)),
        #[expect(clippy::cast_precision_loss, reason = "numbers of ranks are small")]
        BinOp::Div => (b != 0).then(|| Val::Float(a as f64 / b as f64)),
        BinOp::FloorDiv => known(Some(floor_div(a, b)?)),
        BinOp::Mod => known(a.checked_sub(floor_div(a, b)?.checked_mul(b)?)),
        BinOp::Pow => known(u32::try_from(b).ok().and_then(|b| a.checked_pow(b))),
        BinOp::LShift => known(u32::try_from(b).ok().filter(|b| *b < 32).and_then(|b| a.checked_shl(b))),
        BinOp::RShift => known(u32::try_from(b).ok().and_then(|b| a.checked_shr(b))),
        BinOp::BitAnd => known(Some(a & b)),
        BinOp::BitOr => known(Some(a | b)),
        BinOp::BitXor => known(Some(a ^ b)),
        BinOp::MatMul => Some(Val::Unknown),
    }
}

fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    Some(if a % b != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient })
}
