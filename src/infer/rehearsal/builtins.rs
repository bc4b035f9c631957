//! Functions and methods of Python about numbers, lists, dicts and strings. In: values. Out: values. Never: what they print.
//! Source: The Python Standard Library, built-in functions and types. Next: `verdict.rs`.

use super::calls::Given;
use super::run::{Run, Stop, distinct, position, put, sorted};
use super::value::{LONGEST, Shared, Val};
use crate::ir::BinOp;
use crate::source::Name;

/// What a call gives: `None` where it raises.
type Given_ = Result<Option<Val>, Stop>;

impl Run<'_> {
    pub fn builtin(&mut self, name: &str, given: &Given) -> Given_ {
        let args = &given.positional;
        let first = args.first().cloned().unwrap_or(Val::Unknown);
        let list =
            |items: Option<Vec<Val>>| items.filter(|items| items.len() <= LONGEST).map_or(Val::Unknown, Val::list);
        let length = |v: &Val| v.items().map_or(0, |items| items.len());
        let longest = args.iter().map(length).max().unwrap_or(0);
        let distinct_ones = matches!(name, "set" | "frozenset");
        self.charge(if distinct_ones { longest * longest / 16 } else { longest })?;
        if given.open || !given.keywords.is_empty() && !matches!(name, "enumerate" | "print") {
            return Ok(Some(Val::Unknown));
        }
        Ok(Some(match name {
            "range" => return Ok(range(args)),
            "list" if args.is_empty() => Val::list(Vec::new()),
            "list" => list(first.items()),
            "tuple" => first.items().map_or(Val::Unknown, |items| Val::Tuple(items.into())),
            "set" | "frozenset" if args.is_empty() => Val::list(Vec::new()),
            "set" | "frozenset" => list(first.items().and_then(|items| distinct(&items))),
            "dict" if args.is_empty() && given.keywords.is_empty() => Val::Dict(Shared::default()),
            "len" => {
                let length = first.items().and_then(|items| i64::try_from(items.len()).ok());
                length.map_or(Val::Unknown, Val::Int)
            }
            "int" if args.len() == 1 => integer(&first),
            "bool" => first.truth().map_or(Val::Unknown, Val::Bool),
            "abs" => first.int().map_or(Val::Unknown, |i| i.checked_abs().map_or(Val::Unknown, Val::Int)),
            "str" => first.int().map_or(Val::Unknown, |i| Val::Str(Name::from(i.to_string()))),
            "min" | "max" | "sum" => extreme_or_sum(name, args),
            "sorted" if given.keywords.is_empty() => list(first.items().and_then(|items| sorted(&items))),
            "reversed" => list(first.items().map(|items| items.into_iter().rev().collect())),
            "enumerate" => {
                let start = given.get(1, "start").and_then(Val::int).unwrap_or(0);
                let pair = |(i, v): (i64, Val)| Val::Tuple(vec![Val::Int(i), v].into());
                list(first.items().map(|items| (start..).zip(items).map(pair).collect()))
            }
            "zip" => {
                let all: Option<Vec<Vec<Val>>> = args.iter().map(Val::items).collect();
                let rows = all.map(|all| {
                    let shortest = all.iter().map(Vec::len).min().unwrap_or(0);
                    let row = |i: usize| Val::Tuple(all.iter().map(|items| items[i].clone()).collect());
                    (0..shortest).map(row).collect()
                });
                list(rows)
            }
            "any" | "all" => {
                let truths = first.items().map(|items| items.iter().map(Val::truth).collect::<Vec<_>>());
                match truths {
                    Some(truths) if truths.contains(&Some(name == "any")) => Val::Bool(name == "any"),
                    Some(truths) if truths.iter().all(Option::is_some) => Val::Bool(name != "any"),
                    _ => Val::Unknown,
                }
            }
            "divmod" => {
                let (Some(a), Some(b)) = (args.first(), args.get(1)) else { return Ok(Some(Val::Unknown)) };
                let (Some(quotient), Some(rest)) = (Val::binary(BinOp::FloorDiv, a, b), Val::binary(BinOp::Mod, a, b))
                else {
                    return Ok(None);
                };
                Val::Tuple(vec![quotient, rest].into())
            }
            "getattr" => {
                let (Some(base), Some(Val::Str(name))) = (args.first(), args.get(1)) else {
                    return Ok(Some(Val::Unknown));
                };
                return self.attr(base, name);
            }
            "super" => self.above(),
            "isinstance" => is_instance(args),
            "print" => Val::None,
            // What takes one item after the other has no place of its own here, and others may change what they are given.
            _ if args.iter().all(is_fixed) => Val::Unknown,
            _ => return Err(Stop),
        }))
    }

    /// A function of a library that is neither Python's own nor about groups.
    pub fn of_library(&mut self, path: &Name, given: &Given) -> Given_ {
        let args = &given.positional;
        let number = |i: usize| args.get(i).and_then(Val::int);
        let all: Option<Vec<Vec<Val>>> = args.iter().map(Val::items).collect();
        Ok(Some(match &**path {
            "math.prod" | "numpy.prod" => {
                let ranks = args.first().and_then(Val::ranks);
                ranks.and_then(|r| r.into_iter().try_fold(1, i64::checked_mul)).map_or(Val::Unknown, Val::Int)
            }
            "math.gcd" => match (number(0), number(1)) {
                (Some(a), Some(b)) => gcd(a, b).map_or(Val::Unknown, Val::Int),
                _ => Val::Unknown,
            },
            "math.ceil" | "math.floor" => match args.first() {
                Some(Val::Float(f)) if f.is_finite() => {
                    let whole = if path.ends_with("ceil") { f.ceil() } else { f.floor() };
                    integer(&Val::Float(whole))
                }
                Some(other) => other.int().map_or(Val::Unknown, Val::Int),
                None => Val::Unknown,
            },
            "itertools.chain" => all.map_or(Val::Unknown, |all| shortened(all.concat())),
            "itertools.chain.from_iterable" => {
                let inner = args.first().and_then(Val::items);
                let inner: Option<Vec<Vec<Val>>> = inner.and_then(|items| items.iter().map(Val::items).collect());
                inner.map_or(Val::Unknown, |all| shortened(all.concat()))
            }
            "itertools.product" if given.keywords.is_empty() => {
                let count =
                    all.as_ref().and_then(|all| all.iter().try_fold(1usize, |n, items| n.checked_mul(items.len())));
                let rows = all.filter(|_| count.is_some_and(|n| n <= LONGEST)).map(|all| {
                    let longer = |rows: Vec<Vec<Val>>, items: &Vec<Val>| -> Vec<Vec<Val>> {
                        let row = |row: &Vec<Val>| -> Vec<Vec<Val>> {
                            items.iter().map(|v| row.iter().chain([v]).cloned().collect()).collect()
                        };
                        rows.iter().flat_map(row).collect()
                    };
                    all.iter().fold(vec![Vec::new()], longer)
                });
                rows.map_or(Val::Unknown, |rows| Val::list(rows.into_iter().map(|r| Val::Tuple(r.into())).collect()))
            }
            "copy.copy" | "copy.deepcopy" => match args.first() {
                Some(Val::List(items)) => Val::list(items.borrow().clone()),
                Some(other) => other.clone(),
                None => Val::Unknown,
            },
            // Every process of one machine.
            "torch.cuda.device_count" => Val::Int(self.size),
            "os.environ.get" | "os.getenv" => self.variable(args.first()),
            path if path.ends_with(".seed") || says(path) => Val::None,
            path if path.starts_with("random.") || path.starts_with("numpy.random") => return Err(Stop),
            // What it is given may be another thing afterwards, as after a broadcast of objects; and what it is made of may make groups.
            _ if args.iter().chain(given.keywords.iter().map(|(_, v)| v)).all(|v| is_fixed(v) && !self.is_maker(v)) => {
                Val::Unknown
            }
            _ => return Err(Stop),
        }))
    }

    /// Whether a value is a function that makes groups.
    fn is_maker(&self, value: &Val) -> bool {
        matches!(value, Val::Path(path) if self.makes_groups(path))
    }

    fn variable(&self, name: Option<&Val>) -> Val {
        match name {
            Some(Val::Str(name)) if name == "RANK" || name == "LOCAL_RANK" => {
                Val::Str(Name::from(self.rank.to_string()))
            }
            Some(Val::Str(name)) if name == "WORLD_SIZE" || name == "LOCAL_WORLD_SIZE" => {
                Val::Str(Name::from(self.size.to_string()))
            }
            _ => Val::Unknown,
        }
    }

    /// A method of a list, a dict, a string or a group.
    pub fn method_of_value(&mut self, base: &Val, name: &Name, given: &Given) -> Given_ {
        let args = &given.positional;
        let first = args.first().cloned().unwrap_or(Val::Unknown);
        self.stored |= args.iter().any(|v| matches!(v, Val::Group(_)));
        Ok(match base {
            Val::List(items) => return of_list(items, name, args),
            Val::Tuple(items) => match &**name {
                "index" => index_of(items, &first),
                _ => Some(Val::Unknown),
            },
            Val::Dict(entries) => Some(of_dict(entries, name, args)?),
            Val::Str(text) => Some(of_text(text, name, &first)),
            Val::Group(group) => Some(match &**name {
                "size" => i64::try_from(group.ranks.len()).map_or(Val::Unknown, Val::Int),
                "rank" => {
                    let at = group.ranks.iter().position(|r| *r == self.rank);
                    at.and_then(|at| i64::try_from(at).ok()).map_or(Val::Int(-1), Val::Int)
                }
                _ => Val::Unknown,
            }),
            _ if args.iter().all(is_fixed) => Some(Val::Unknown),
            // What is not seen may change what it is given.
            _ => return Err(Stop),
        })
    }

    /// Takes the steps that many items cost.
    fn charge(&mut self, items: usize) -> Result<(), Stop> {
        self.take(u32::try_from(items / 8).unwrap_or(u32::MAX))
    }
}

/// Parts of the names of functions that tell the user something, and do nothing else.
const SAYS: &[&str] = &["log", "logger", "print", "warn", "warning", "warnings", "logging", "info", "debug"];

/// Whether a function tells the user something, by its name.
pub fn says(path: &str) -> bool {
    path.split(['.', '_']).any(|part| SAYS.contains(&part))
}

/// Whether nobody can change a value.
fn is_fixed(value: &Val) -> bool {
    match value {
        Val::List(_) | Val::Dict(_) | Val::Object(_) => false,
        Val::Tuple(items) => items.iter().all(|v| !matches!(v, Val::List(_) | Val::Dict(_) | Val::Object(_))),
        _ => true,
    }
}

fn shortened(items: Vec<Val>) -> Val {
    if items.len() <= LONGEST { Val::list(items) } else { Val::Unknown }
}

fn range(args: &[Val]) -> Option<Val> {
    let numbers: Option<Vec<i64>> = args.iter().map(Val::int).collect();
    let Some(numbers) = numbers else { return Some(Val::Unknown) };
    let (start, stop, step) = match numbers.as_slice() {
        [stop] => (0, *stop, 1),
        [start, stop] => (*start, *stop, 1),
        [start, stop, step] => (*start, *stop, *step),
        _ => return None,
    };
    if step == 0 {
        return None;
    }
    let count = stop.abs_diff(start) / step.unsigned_abs();
    if usize::try_from(count).is_err() || count >= LONGEST as u64 {
        return Some(Val::Unknown);
    }
    let mut out = Vec::new();
    let mut next = Some(start);
    while let Some(at) = next.filter(|at| if step > 0 { *at < stop } else { *at > stop }) {
        out.push(Val::Int(at));
        next = at.checked_add(step);
    }
    Some(Val::list(out))
}

fn integer(value: &Val) -> Val {
    match value {
        #[expect(clippy::cast_possible_truncation, reason = "as Python does, of numbers of ranks")]
        Val::Float(f) if f.abs() < 1e12 => Val::Int(f.trunc() as i64),
        Val::Str(text) => text.trim().parse().map_or(Val::Unknown, Val::Int),
        other => other.int().map_or(Val::Unknown, Val::Int),
    }
}

/// The least, the greatest or the sum of numbers.
fn extreme_or_sum(name: &str, args: &[Val]) -> Val {
    let first = args.first().cloned().unwrap_or(Val::Unknown);
    if name == "sum" {
        let start = args.get(1).cloned().unwrap_or(Val::Int(0));
        return first.items().and_then(|items| folded(items, start)).unwrap_or(Val::Unknown);
    }
    let items = if args.len() == 1 { first.items() } else { Some(args.to_vec()) };
    let numbers: Option<Vec<i64>> = items.and_then(|items| items.iter().map(Val::int).collect());
    let found = numbers.and_then(|n| if name == "min" { n.into_iter().min() } else { n.into_iter().max() });
    found.map_or(Val::Unknown, Val::Int)
}

fn folded(items: Vec<Val>, start: Val) -> Option<Val> {
    items.into_iter().try_fold(start, |sum, v| Val::binary(BinOp::Add, &sum, &v))
}

fn gcd(a: i64, b: i64) -> Option<i64> {
    if b == 0 { a.checked_abs() } else { gcd(b, a.checked_rem(b)?) }
}

fn is_instance(args: &[Val]) -> Val {
    let Some(Val::Path(class)) = args.get(1) else { return Val::Unknown };
    let is = match (args.first(), &**class) {
        (Some(Val::Int(_)), "builtins.int") => true,
        (Some(Val::Tuple(_)), "builtins.tuple") => true,
        (Some(Val::Str(_)), "builtins.str") => true,
        (Some(Val::None), _) => false,
        (Some(Val::Int(_) | Val::Tuple(_) | Val::Str(_)), class) if class.starts_with("builtins.") => false,
        _ => return Val::Unknown,
    };
    Val::Bool(is)
}

/// Where an item stands; `None`: it raises.
fn index_of(items: &[Val], wanted: &Val) -> Option<Val> {
    for (at, item) in items.iter().enumerate() {
        match item.equals(wanted) {
            Some(true) => return Some(i64::try_from(at).map_or(Val::Unknown, Val::Int)),
            Some(false) => {}
            None => return Some(Val::Unknown),
        }
    }
    None
}

fn of_list(items: &Shared<Vec<Val>>, name: &str, args: &[Val]) -> Given_ {
    let first = args.first().cloned().unwrap_or(Val::Unknown);
    Ok(Some(match name {
        "append" if items.borrow().len() < LONGEST => {
            items.borrow_mut().push(first);
            Val::None
        }
        "extend" => {
            let more = first.items().filter(|more| more.len() + items.borrow().len() <= LONGEST).ok_or(Stop)?;
            items.borrow_mut().extend(more);
            Val::None
        }
        "insert" => {
            let at = usize::try_from(first.int().ok_or(Stop)?).map_err(|_| Stop)?;
            let mut items = items.borrow_mut();
            let at = at.min(items.len());
            items.insert(at, args.get(1).cloned().unwrap_or(Val::Unknown));
            Val::None
        }
        "index" => return Ok(index_of(&items.borrow(), &first)),
        "copy" | "tolist" => Val::list(items.borrow().clone()),
        "reverse" => {
            items.borrow_mut().reverse();
            Val::None
        }
        "sort" if args.is_empty() => {
            let ordered = sorted(&items.borrow()).ok_or(Stop)?;
            *items.borrow_mut() = ordered;
            Val::None
        }
        "pop" => {
            let mut items = items.borrow_mut();
            let at = if args.is_empty() { -1 } else { first.int().ok_or(Stop)? };
            let Some(at) = position(at, items.len()) else { return Ok(None) };
            items.remove(at)
        }
        "count" => {
            let equal = items.borrow().iter().filter(|v| v.equals(&first) == Some(true)).count();
            i64::try_from(equal).map_or(Val::Unknown, Val::Int)
        }
        // Others may change it.
        _ => return Err(Stop),
    }))
}

fn of_dict(entries: &Shared<Vec<(Val, Val)>>, name: &str, args: &[Val]) -> Result<Val, Stop> {
    let get = |key: &Val| {
        let entries = entries.borrow();
        entries.iter().find(|(k, _)| k.equals(key) == Some(true)).map(|(_, v)| v.clone())
    };
    // A key that may be one of them.
    if args.first().is_some_and(|key| entries.borrow().iter().any(|(k, _)| k.equals(key).is_none())) {
        return Err(Stop);
    }
    let pair = |(k, v): &(Val, Val)| Val::Tuple(vec![k.clone(), v.clone()].into());
    Ok(match (name, args) {
        ("get", [key]) => get(key).unwrap_or(Val::None),
        ("get", [key, default]) => get(key).unwrap_or_else(|| default.clone()),
        ("setdefault", [key, default]) => get(key).unwrap_or_else(|| {
            put(entries, key.clone(), default.clone());
            default.clone()
        }),
        ("items", []) => Val::list(entries.borrow().iter().map(pair).collect()),
        ("keys", []) => Val::list(entries.borrow().iter().map(|(k, _)| k.clone()).collect()),
        ("values", []) => Val::list(entries.borrow().iter().map(|(_, v)| v.clone()).collect()),
        // Others may change it.
        _ => return Err(Stop),
    })
}

fn joined(by: &Name, items: &Val) -> Val {
    let text = |v: &Val| if let Val::Str(text) = v { Some(text.to_string()) } else { None };
    let parts: Option<Vec<String>> = items.items().and_then(|items| items.iter().map(text).collect());
    parts.map_or(Val::Unknown, |parts| Val::Str(Name::from(parts.join(by))))
}

fn of_text(text: &Name, name: &str, first: &Val) -> Val {
    match (name, first) {
        ("split", Val::Str(by)) if !by.is_empty() => {
            Val::list(text.split(by.as_str()).map(|part| Val::Str(Name::from(part))).collect())
        }
        ("lower", _) => Val::Str(Name::from(text.to_lowercase())),
        ("upper", _) => Val::Str(Name::from(text.to_uppercase())),
        ("startswith", Val::Str(head)) => Val::Bool(text.starts_with(head.as_str())),
        ("endswith", Val::Str(tail)) => Val::Bool(text.ends_with(tail.as_str())),
        ("join", items) => joined(text, items),
        ("strip", Val::Unknown) => Val::Str(Name::from(text.trim())),
        _ => Val::Unknown,
    }
}
