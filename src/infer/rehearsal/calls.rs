//! Calls of a rehearsal: functions of the project are executed, those of Python about numbers and lists are computed, and groups are made
//! as torch makes them. In: a callee and its arguments. Out: what it returns. Never: anything else of a library, which is unknown.
//! Source: torch.distributed, `new_group`, `get_rank`, `get_world_size`, `get_process_group_ranks`. Next: `builtins.rs`.

use super::builtins::says;
use super::run::{Made, Run, Stop, position};
use super::value::{Closure, Group, Val};
use crate::ir::{Arg, ArgKind, ParamKind, StmtId};
use crate::project::ClassRef;
use crate::rules::Entry;
use crate::source::{Name, Place};
use std::rc::Rc;

/// Arguments of a call.
#[derive(Debug, Default)]
pub struct Given {
    pub positional: Vec<Val>,
    pub keywords: Vec<(Name, Val)>,
    /// There are more, which are not known.
    pub open: bool,
}

impl Given {
    pub fn get(&self, position: usize, name: &str) -> Option<&Val> {
        let keyword = self.keywords.iter().find(|(k, _)| k == name).map(|(_, v)| v);
        keyword.or_else(|| self.positional.get(position))
    }
}

/// What a call gives: `None` where it raises.
type Result_ = Result<Option<Val>, Stop>;

impl Run<'_> {
    pub fn call(&mut self, id: StmtId, callee: &Val, args: &[Arg]) -> Result_ {
        let given = self.given(args);
        self.called(id, callee, given)
    }

    fn given(&mut self, args: &[Arg]) -> Given {
        let mut given = Given::default();
        for arg in args {
            let value = self.operand(&arg.value);
            match &arg.kind {
                ArgKind::Positional => given.positional.push(value),
                ArgKind::Keyword(name) => given.keywords.push((name.clone(), value)),
                ArgKind::Star => match value.items() {
                    Some(items) => given.positional.extend(items),
                    None => given.open = true,
                },
                ArgKind::DoubleStar => match &value {
                    Val::Dict(entries) => given.keywords.extend(entries.borrow().iter().filter_map(|(k, v)| match k {
                        Val::Str(name) => Some((name.clone(), v.clone())),
                        _ => None,
                    })),
                    _ => given.open = true,
                },
            }
        }
        given
    }

    fn called(&mut self, id: StmtId, callee: &Val, given: Given) -> Result_ {
        match callee {
            Val::Func(closure) => self.call_closure(closure, given),
            Val::Class(class) => self.construct(*class, given),
            Val::Bound(bound) => {
                let (owner, at) = &**bound;
                let func = self.project.func(*at);
                let takes = func.params.first().map(|p| p.name.as_str());
                let first = match (owner, takes) {
                    _ if self.is_decorated(*at, "staticmethod") => None,
                    (Val::Object(_), Some("self")) => Some(owner.clone()),
                    (Val::Object(object), Some("cls")) => Some(Val::Class(object.borrow().class)),
                    (Val::Class(_), Some("cls")) => Some(owner.clone()),
                    _ => None,
                };
                let positional = first.into_iter().chain(given.positional).collect();
                self.call_closure(&self.plain(*at), Given { positional, ..given })
            }
            Val::Path(path) => self.external(id, path, &given),
            // What is not known may be anything, and make groups.
            _ if given.positional.iter().any(|v| matches!(v, Val::List(_) | Val::Dict(_) | Val::Object(_))) => {
                Err(Stop)
            }
            _ => Ok(Some(Val::Unknown)),
        }
    }

    pub fn call_method(&mut self, id: StmtId, base: &Val, name: &Name, args: &[Arg]) -> Result_ {
        match base {
            Val::Path(_) | Val::Module(_) | Val::Object(_) | Val::Class(_) | Val::Super(_) => {
                match self.attr(base, name)? {
                    Some(Val::Unknown) | None => {
                        // What is not seen may make groups.
                        if matches!(base, Val::Object(_) | Val::Class(_)) && name.contains("group") {
                            return Err(Stop);
                        }
                        Ok(Some(Val::Unknown))
                    }
                    Some(callee) => self.call(id, &callee, args),
                }
            }
            _ => {
                let given = self.given(args);
                self.method_of_value(base, name, &given)
            }
        }
    }

    pub fn call_closure(&mut self, closure: &Rc<Closure>, given: Given) -> Result_ {
        let func = self.project.func(closure.at);
        // Of the versions of torch there are, a recent one.
        if func.name.starts_with("is_") && func.name.ends_with("min_version") {
            return Ok(Some(Val::Bool(true)));
        }
        if says(&func.name.to_lowercase()) {
            return Ok(Some(Val::Unknown));
        }
        // A cache, or something else, may stand around it.
        if given.open || self.is_wrapped(closure.at) {
            return Err(Stop);
        }
        let (mut positional, mut keywords) = (given.positional.into_iter(), given.keywords);
        let mut values = Vec::with_capacity(func.params.len());
        for (i, param) in func.params.iter().enumerate() {
            let keyword = keywords.iter().position(|(k, _)| *k == param.name);
            let default = || {
                let found = closure.defaults.iter().find(|(at, _)| *at as usize == i);
                found.map_or(Val::Unknown, |(_, v)| v.clone())
            };
            values.push(match param.kind {
                ParamKind::VarArgs => Val::Tuple(positional.by_ref().collect()),
                ParamKind::KwArgs => {
                    let rest = std::mem::take(&mut keywords);
                    let entries: Vec<(Val, Val)> = rest.into_iter().map(|(k, v)| (Val::Str(k), v)).collect();
                    Val::Dict(Rc::new(std::cell::RefCell::new(entries)))
                }
                _ => match keyword {
                    Some(at) => keywords.remove(at).1,
                    None if param.kind == ParamKind::KeywordOnly => default(),
                    None => positional.next().unwrap_or_else(default),
                },
            });
        }
        self.execute(closure.at, &closure.cells, values)
    }

    fn construct(&mut self, class: ClassRef, given: Given) -> Result_ {
        let object = Run::object(class);
        let Some(init) = self.method(class, "__init__") else { return Ok(Some(object)) };
        let positional = std::iter::once(object.clone()).chain(given.positional).collect();
        Ok(self.call_closure(&self.plain(init), Given { positional, ..given })?.map(|_| object))
    }

    /// Whether a function of a library makes groups.
    pub fn makes_groups(&self, path: &str) -> bool {
        let by_rule = matches!(self.rules.get(path), Some(Entry::Intrinsic(rule)) if rule.does == "new-group");
        by_rule || path.contains("new_subgroups") || path.contains("split_group") || path.contains("init_device_mesh")
    }

    fn external(&mut self, id: StmtId, path: &Name, given: &Given) -> Result_ {
        if let Some(name) = path.strip_prefix("builtins.") {
            let name = name.to_string();
            return self.builtin(&name, given);
        }
        if self.makes_groups(path) {
            let last = path.rsplit('.').next().unwrap_or_default();
            return match last {
                "new_group" => self.new_group(id, given),
                _ => Err(Stop),
            };
        }
        let does = match self.rules.get(path) {
            Some(Entry::Intrinsic(rule)) => Some((rule.does.clone(), rule.args.index("group").unwrap_or(0))),
            _ => None,
        };
        if let Some((does, at)) = does {
            let group = given.get(at, "group").cloned();
            match &*does {
                "get-rank" => return self.rank_in(group.as_ref()).map(Some),
                "get-world-size" => return self.size_of(group.as_ref()).map(Some),
                _ => {}
            }
        }
        let last = path.rsplit('.').next().unwrap_or_default().to_string();
        Ok(Some(match (path.starts_with("torch.distributed"), &*last) {
            (true, "is_initialized" | "is_available") => Val::Bool(true),
            (true, "get_process_group_ranks") => match given.get(0, "group").and_then(|g| self.ranks_of(g)) {
                Some(ranks) => Val::list(ranks.into_iter().map(Val::Int).collect()),
                None => Val::Unknown,
            },
            (true, "get_global_rank") => {
                let ranks = given.get(0, "group").and_then(|g| self.ranks_of(g));
                let at = given.get(1, "group_rank").and_then(Val::int);
                let found = ranks.zip(at).and_then(|(ranks, at)| Some(ranks[position(at, ranks.len())?]));
                found.map_or(Val::Unknown, Val::Int)
            }
            _ => return self.of_library(path, given),
        }))
    }

    /// The ranks of a group.
    fn ranks_of(&self, group: &Val) -> Option<Vec<i64>> {
        match group {
            Val::Group(group) => Some(group.ranks.clone()),
            Val::None => Some((0..self.size).collect()),
            Val::Path(path) if path.ends_with("group.WORLD") || path.ends_with("GroupMember.WORLD") => {
                Some((0..self.size).collect())
            }
            _ => None,
        }
    }

    fn rank_in(&self, group: Option<&Val>) -> Result<Val, Stop> {
        let Some(ranks) = self.ranks_of(group.unwrap_or(&Val::None)) else { return Ok(Val::Unknown) };
        let at = ranks.iter().position(|r| *r == self.rank);
        Ok(Val::Int(at.and_then(|at| i64::try_from(at).ok()).unwrap_or(-1)))
    }

    fn size_of(&self, group: Option<&Val>) -> Result<Val, Stop> {
        let Some(ranks) = self.ranks_of(group.unwrap_or(&Val::None)) else { return Ok(Val::Unknown) };
        let member = ranks.contains(&self.rank);
        Ok(Val::Int(i64::try_from(ranks.len()).ok().filter(|_| member).unwrap_or(-1)))
    }

    fn new_group(&mut self, id: StmtId, given: &Given) -> Result_ {
        let local = given.keywords.iter().any(|(k, v)| k == "use_local_synchronization" && v.truth() != Some(false));
        if local || given.open {
            return Err(Stop);
        }
        let ranks = match given.get(0, "ranks") {
            None | Some(Val::None) => (0..self.size).collect(),
            Some(given) => given.ranks().ok_or(Stop)?,
        };
        // torch refuses ranks that there are not, or that stand there twice.
        let twice = (1..ranks.len()).any(|i| ranks[..i].contains(&ranks[i]));
        if twice || ranks.iter().any(|r| !(0..self.size).contains(r)) {
            return Ok(None);
        }
        let mut ranks: Vec<i64> = ranks;
        ranks.sort_unstable();
        let at: Place = self.place(id);
        self.made.push(Made { ranks: ranks.clone(), at });
        Ok(Some(Val::Group(Rc::new(Group { ranks, made: Some(at) }))))
    }
}
