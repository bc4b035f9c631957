//! Which jobs are rehearsed: the numbers of ranks that the parameters of a function, and of the constructor of its class, may be. In: a function.
//! Out: [`Choice`]. Never: numbers that do not multiply to that of all ranks where each axis has a parameter. Next: `verdict.rs`.

use super::calls::Given;
use super::names::{bases, defined, method_of};
use super::run::{Run, Stop, is_of_rank};
use super::value::{Group, Val};
use super::verdict::RANKS;
use crate::ir::{Const, Func, Operand, Param, ParamKind};
use crate::project::{ClassRef, FuncRef, Project};
use crate::source::Name;
use std::rc::Rc;

/// What parameters may be.
pub struct Choice {
    /// The constructor of the class of a method, and what it is given after the object.
    init: Option<(FuncRef, Vec<Slot>)>,
    class: Option<ClassRef>,
    own: Vec<Slot>,
    numbers: Vec<Number>,
}

/// What a parameter is given.
enum Slot {
    Object,
    Class,
    Rank,
    Size,
    /// A group of half of the ranks.
    Half,
    Fixed(Val),
    /// One of the numbers.
    Number(usize),
}

/// A parameter that is a number of ranks.
struct Number {
    name: Name,
    /// `None`: callers give it.
    default: Option<Usual>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Usual {
    LeftOut,
    Is(i64),
}

/// Numbers of one job; `None`: it is left out.
pub type Variant = Vec<Option<i64>>;

impl Choice {
    pub fn new(project: &Project, at: FuncRef) -> Option<Choice> {
        let func = project.func(at);
        if func.is_generator || func.is_async {
            return None;
        }
        let class = func.class.map(|class| ClassRef { module: at.module, class });
        let mut choice = Choice { init: None, class, own: Vec::new(), numbers: Vec::new() };
        if let Some(class) =
            class.filter(|_| func.name != INIT && func.params.first().is_some_and(|p| p.name == "self"))
            && let Some(init) = method_of(project, class, INIT, 0)
        {
            let named = constructor(project, class, init)?;
            let slots = choice.slots(project, named, 1);
            choice.init = Some((init, slots));
        }
        choice.own = choice.slots(project, at, 0);
        (choice.numbers.len() <= MOST_NUMBERS).then_some(choice)
    }

    fn slots(&mut self, project: &Project, at: FuncRef, skip: usize) -> Vec<Slot> {
        let func = project.func(at);
        let defaults = defaults_of(project, at);
        let slot = |(i, param): (usize, &Param)| {
            let default = defaults.iter().find(|(n, _)| *n as usize == i).map(|(_, c)| c);
            self.slot(func, param, default)
        };
        func.params.iter().enumerate().skip(skip).map(slot).collect()
    }

    fn slot(&mut self, func: &Func, param: &Param, default: Option<&Const>) -> Slot {
        match (&*param.name, func.class) {
            ("self", Some(_)) => return Slot::Object,
            ("cls", Some(_)) => return Slot::Class,
            ("world_size", _) => return Slot::Size,
            ("rank" | "local_rank" | "global_rank", _) => return Slot::Rank,
            _ if is_given_group(param) => return Slot::Half,
            _ => {}
        }
        let usual = match (default, param.has_default) {
            (None, false) => Some(None),
            (Some(Const::None), _) => Some(Some(Usual::LeftOut)),
            (Some(Const::Int(n @ 1..=8)), _) => Some(Some(Usual::Is(*n))),
            _ => None,
        };
        match (usual.filter(|_| is_number(param)), default) {
            (Some(default), _) => {
                self.numbers.push(Number { name: param.name.clone(), default });
                Slot::Number(self.numbers.len() - 1)
            }
            // That the first rank is the default does not make every rank the first.
            (None, Some(c)) if *c == Const::None || !is_of_rank(&param.name) => Slot::Fixed(Val::constant(c)),
            (None, _) => Slot::Fixed(Val::Unknown),
        }
    }

    /// The jobs. Where every axis has a parameter the numbers multiply to that of all ranks; otherwise some of those that have a default are changed.
    pub fn variants(&self) -> Vec<Variant> {
        let given = self.numbers.iter().filter(|n| n.default.is_none()).count();
        let of_data = |n: &Number| n.name.contains("data") || n.name.split('_').any(|part| part == "dp");
        if given > 1 || self.numbers.iter().any(of_data) {
            return self.factors();
        }
        let usual = |n: &Number| match n.default {
            None => Some(2),
            Some(Usual::LeftOut) => None,
            Some(Usual::Is(n)) => Some(n),
        };
        let usual: Variant = self.numbers.iter().map(usual).collect();
        let alone = self.numbers.len() == 1;
        let changed: Vec<usize> =
            (0..usual.len()).filter(|i| alone || self.numbers[*i].default == Some(Usual::Is(1))).collect();
        let other = |which: &[usize]| {
            let mut out = usual.clone();
            which.iter().for_each(|i| out[*i] = Some(if usual[*i] == Some(2) { 4 } else { 2 }));
            out
        };
        // Jobs with many axes tell most, and what they tell is told first: a large function has no steps left for the others.
        let several = if let [a, b, c, ..] = changed.as_slice() { Some(other(&[*a, *b, *c])) } else { None };
        let mut out: Vec<Variant> = several.into_iter().collect();
        let pairs = changed.iter().enumerate().flat_map(|(n, i)| changed[n + 1..].iter().map(move |j| [*i, *j]));
        out.extend(pairs.map(|pair| other(&pair)));
        out.extend(changed.iter().map(|i| other(&[*i])));
        out.push(usual);
        out
    }

    /// Numbers that multiply to that of all ranks, those with many axes first.
    fn factors(&self) -> Vec<Variant> {
        let mut rows: Vec<Vec<i64>> = vec![Vec::new()];
        for _ in &self.numbers {
            let longer = |row: &Vec<i64>| [2, 1, 4, 8].map(|n| row.iter().copied().chain([n]).collect::<Vec<i64>>());
            rows = rows.iter().flat_map(longer).filter(|row| row.iter().product::<i64>() <= RANKS).collect();
        }
        rows.retain(|row| row.iter().product::<i64>() == RANKS);
        rows.sort_by_key(|row| row.iter().filter(|n| **n == 1).count());
        rows.truncate(MOST_JOBS);
        rows.into_iter().map(|row| row.into_iter().map(Some).collect()).collect()
    }

    /// One rank executes the function. Whether it comes to its end.
    pub fn executed(&self, run: &mut Run<'_>, variant: &Variant, at: FuncRef) -> Result<bool, Stop> {
        let object = self.class.map_or(Val::Unknown, Run::object);
        if let Some((init, slots)) = &self.init {
            let rest = slots.iter().map(|slot| self.value(slot, variant, run.rank, &object));
            let positional = std::iter::once(object.clone()).chain(rest).collect();
            if run.call_closure(&run.plain(*init), Given { positional, ..Given::default() })?.is_none() {
                return Ok(false);
            }
        }
        let given: Vec<Val> = self.own.iter().map(|slot| self.value(slot, variant, run.rank, &object)).collect();
        Ok(run.execute(at, &[], given)?.is_some())
    }

    fn value(&self, slot: &Slot, variant: &Variant, rank: i64, object: &Val) -> Val {
        match slot {
            Slot::Object => object.clone(),
            Slot::Class => self.class.map_or(Val::Unknown, Val::Class),
            Slot::Rank => Val::Int(rank),
            Slot::Size => Val::Int(RANKS),
            Slot::Half => half(rank),
            Slot::Fixed(value) => value.clone(),
            Slot::Number(at) => variant[*at].map_or(Val::None, Val::Int),
        }
    }

    /// Whether every rank that calls the function is known to be the rank that the function is given.
    pub fn is_given_rank(&self) -> bool {
        self.own.iter().any(|slot| matches!(slot, Slot::Rank))
    }

    /// The numbers of a job, by name.
    pub fn named(&self, variant: &Variant) -> Vec<(Name, i64)> {
        self.numbers.iter().zip(variant).filter_map(|(number, n)| Some((number.name.clone(), (*n)?))).collect()
    }
}

/// Parameters that are numbers of ranks, beyond which nothing is rehearsed.
const MOST_NUMBERS: usize = 8;

/// Jobs whose numbers multiply to that of all ranks.
const MOST_JOBS: usize = 8;

/// The name of constructors.
const INIT: &str = "__init__";

/// The constructor whose parameters have names: that of a base, where one hands on all that it is given.
fn constructor(project: &Project, class: ClassRef, init: FuncRef) -> Option<FuncRef> {
    let hands_on = |at: FuncRef| project.func(at).params.iter().any(|p| p.kind == ParamKind::VarArgs);
    if !hands_on(init) {
        return Some(init);
    }
    let above = bases(project, class).into_iter().find_map(|base| method_of(project, base, INIT, 0))?;
    (!hands_on(above)).then_some(above)
}

/// What ends the names of numbers of ranks.
const COUNTS: &[&str] = &["size", "degree", "parallel", "ways", "machine", "node", "tp", "pp", "cp", "ep", "sp", "dp"];

/// Whether a parameter is a number of ranks.
fn is_number(param: &Param) -> bool {
    let hinted = param.hint.as_ref().is_none_or(|hint| matches!(&**hint, "int" | "Optional[int]" | "int|None"));
    let name = param.name.trim_end_matches('_');
    let is_single = matches!(param.kind, ParamKind::Normal | ParamKind::KeywordOnly | ParamKind::PositionalOnly);
    let other =
        ["rank", "batch", "bucket", "hidden", "vocab", "seq_size", "buffer"].iter().any(|word| name.contains(word));
    hinted && is_single && !other && name.rsplit('_').next().is_some_and(|last| COUNTS.contains(&last))
}

/// What groups are called that may be those of all ranks.
const ANY: &[&str] =
    &["process", "world", "global", "default", "dist", "all", "parent", "device", "cpu", "gloo", "nccl"];

/// Whether a parameter is a group of some ranks that every caller gives.
pub fn is_given_group(param: &Param) -> bool {
    let axis = param.name.strip_suffix("_group").or_else(|| param.name.strip_suffix("_pg"));
    !param.has_default && axis.is_some_and(|axis| !ANY.contains(&axis.trim_start_matches('_')))
}

/// A group that is given: of two with half of the ranks each, that of this rank.
fn half(rank: i64) -> Val {
    let middle = RANKS / 2;
    let ranks = if rank < middle { (0..middle).collect() } else { (middle..RANKS).collect() };
    Val::Group(Rc::new(Group { ranks, made: None }))
}

/// The defaults of parameters that are constants.
fn defaults_of(project: &Project, at: FuncRef) -> Vec<(u32, Const)> {
    let written = defined(project, at).map_or(&[][..], |(defaults, _)| defaults);
    let constant = |(n, o): &(u32, Operand)| if let Operand::Const(c) = o { Some((*n, c.clone())) } else { None };
    written.iter().filter_map(constant).collect()
}
