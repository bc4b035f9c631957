//! Groups that not all ranks make alike. In: a function. Out: a call that makes a process group and is reached by some ranks only, or is
//! given ranks that each rank has chosen by its own. Never: groups that are made with local synchronisation, groups of one rank, a
//! parameter that is called `rank`, which may be that of a loop, or a branch that calls something which may hold the counterpart.
//! Source: torch.distributed, `new_group`: all processes of the job enter it, in the same order. Next: `flow.rs`.

use super::Found;
use super::coming::Coming;
use super::expr::Expr;
use super::flow::Flow;
use super::found::Practice;
use super::lost::last;
use super::near;
use super::ranks::other_branch_calls;
use super::view::View;
use crate::ir::{Arg, ArgKind, BuildKind, CmpOp, Const, Item, LocalId, Operand, Rvalue, Stmt};
use crate::rules::Entry;
use crate::source::{Name, Place};
use rustc_hash::FxHashMap;

/// Functions that tell the machines of a job apart.
const HOSTS: &[&str] = &["socket.gethostname", "socket.getfqdn", "socket.inet_ntoa", "platform.node"];

/// Functions that read a variable of the environment.
const ENVIRONMENT: &[&str] = &["os.getenv", "os.environ.get"];

/// Functions of ranks that give the same ranks.
const SAME: &[&str] = &["list", "tuple", "sorted", "set"];

/// What says that groups are of a backend where those who are in one make it.
pub const MEMBERS_ONLY: &[&str] = &["xla"];

/// How far attributes are followed.
const MOST_ATTRIBUTES: usize = 2;

pub fn made(view: &View<'_>, out: &mut Found) {
    let makers: Vec<(usize, Name, Option<&Operand>)> =
        (0..view.steps.len()).filter_map(|i| maker(view, i).map(|(name, ranks)| (i, name, ranks))).collect();
    let text = || view.file();
    // Only those who come are in the job.
    let joins = || {
        let path = |i| view.value(i).and_then(|value| view.callee(value));
        (0..view.steps.len()).any(|i| path(i).is_some_and(|path| path == "torch.distributed.init_process_group"))
    };
    if makers.is_empty() || joins() || view.func.is_generator || near::has_any(text(), MEMBERS_ONLY) {
        return;
    }
    let flow = Flow::new(view, &is_own, |op| matches!(op, CmpOp::Eq | CmpOp::Ne | CmpOp::In | CmpOp::NotIn));
    if flow.is_empty() {
        return;
    }
    let own = OwnLists::new(view, &flow).certain(view, &flow);
    for (i, maker, ranks) in &makers {
        let place = view.place(view.steps[*i].id);
        if let Some(decided) = flow.decides(view, *i) {
            // Under another test on the rank: the others may make it there.
            let elsewhere = makers.iter().any(|(j, ..)| {
                let other = flow.decides(view, *j).map(|d| (d.guard.at, d.guard.holds));
                j != i && other.is_some_and(|other| other != (decided.guard.at, decided.guard.holds))
            });
            if !elsewhere && !other_branch_calls(view, &decided.guard) {
                let (condition, exit) = (decided.test, decided.exit);
                let mistake = Coming::MadeBySome { maker: maker.clone(), condition, exit };
                out.push((place, Practice::Coming(mistake)));
            }
            continue;
        }
        let chosen = ranks.and_then(|ranks| Some((ranks, own.chosen(ranks)?)));
        if let Some((ranks, step)) = chosen {
            let ranks = Name::from(view.text(operand(view, *i, ranks)));
            let mistake = Coming::MadeOfOwn { maker: maker.clone(), ranks, chosen: view.place(view.steps[step].id) };
            out.push((place, Practice::Coming(mistake)));
        }
    }
}

/// Where an argument of a step is written, or the whole step.
fn operand(view: &View<'_>, step: usize, wanted: &Operand) -> Place {
    match wanted {
        Operand::Local(local) if !view.is_temp(*local) => {
            let id = view.steps[step].id;
            let named = |n: &usize| view.text(view.part(id, *n)).trim() == view.local_name(*local).as_str();
            (0..MOST_PARTS).find(named).map_or_else(|| view.place(id), |n| view.part(id, n))
        }
        Operand::Local(local) => match view.defs(*local) {
            [one] => view.place(view.steps[*one].id),
            _ => view.place(view.steps[step].id),
        },
        _ => view.place(view.steps[step].id),
    }
}

/// How many parts of a call are looked at for an argument.
const MOST_PARTS: usize = 8;

/// The call that makes a group, with the ranks that it is given.
fn maker<'a>(view: &View<'a>, step: usize) -> Option<(Name, Option<&'a Operand>)> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let (path, rule) = view.ruled(value)?;
    let Some(Entry::Intrinsic(rule)) = rule else { return None };
    let name = last(&path);
    if rule.does != "new-group" || name != "new_group" || args.iter().any(is_local) {
        return None;
    }
    let position = rule.args.index("ranks")?;
    Some((name, view.argument(args, position, "ranks")))
}

/// `use_local_synchronization=True`, or arguments that are not seen.
fn is_local(arg: &Arg) -> bool {
    match &arg.kind {
        ArgKind::Keyword(name) => {
            name == "use_local_synchronization" && !matches!(arg.value, Operand::Const(Const::Bool(false)))
        }
        ArgKind::Star | ArgKind::DoubleStar => true,
        ArgKind::Positional => false,
    }
}

/// Whether an operation gives the rank among all ranks: `dist.get_rank()`, or an attribute that keeps it.
pub fn is_rank<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    match value {
        Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. } => {
            let first = || args.first().is_some_and(|a| is_variable(view, &a.value));
            if view.callee(value).is_some_and(|path| ENVIRONMENT.contains(&path.as_str())) {
                return first();
            }
            let asks = |rule: Option<&Entry>| matches!(rule, Some(Entry::Intrinsic(rule)) if rule.does == "get-rank");
            args.is_empty() && view.ruled(value).is_some_and(|(_, rule)| asks(rule))
        }
        Rvalue::Item { base, index } => {
            is_variable(view, index) && view.expr(base).path().is_some_and(|path| path == "os.environ")
        }
        Rvalue::Attr { base, name } => near::is_self(view, base) && keeps_rank(view, name, 0),
        _ => false,
    }
}

/// Whether a value names the variable of the environment that holds the rank.
fn is_variable(view: &View<'_>, name: &Operand) -> bool {
    view.expr(name).string().is_some_and(|name| name == "RANK")
}

/// Whether the class gives an attribute the rank among all ranks and nothing else.
fn keeps_rank(view: &View<'_>, name: &str, depth: usize) -> bool {
    let Some(class) = near::class_of(view).filter(|_| depth < MOST_ATTRIBUTES && name.contains("rank")) else {
        return false;
    };
    let set = near::assigned(view, class, name);
    let is = |e: &Expr| match e {
        Expr::Call { callee, args, .. } => {
            let rule = near::path(view, callee).and_then(|path| view.rules.get(&path));
            args.is_empty() && matches!(rule, Some(Entry::Intrinsic(rule)) if rule.does == "get-rank")
        }
        _ => false,
    };
    !set.is_empty() && set.iter().all(|(method, _, value)| is(&near::deep(method, &method.expr(value))))
}

/// Whether an operation gives what tells ranks or machines apart.
fn is_own<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    is_rank(view, value) || is_host(view, value)
}

fn is_host<'a>(view: &View<'a>, value: &'a Rvalue) -> bool {
    matches!(value, Rvalue::Call { .. } | Rvalue::CallMethod { .. })
        && view.callee(value).is_some_and(|path| HOSTS.contains(&path.as_str()))
}

/// Lists of ranks that differ by rank.
struct OwnLists {
    /// The step that makes each differ.
    lists: FxHashMap<LocalId, usize>,
}

impl OwnLists {
    fn new(view: &View<'_>, flow: &Flow) -> OwnLists {
        let mut own = OwnLists { lists: FxHashMap::default() };
        for i in 0..view.steps.len() {
            let Some((local, step)) = own.made_at(view, flow, i) else { continue };
            own.lists.entry(local).or_insert(step);
        }
        own
    }

    /// Without the lists that are bound again to something else, or that a collective is given before they are used.
    fn certain(mut self, view: &View<'_>, flow: &Flow) -> OwnLists {
        let lists: Vec<LocalId> = self.lists.keys().copied().collect();
        for list in lists {
            let differs = |def: &usize| match view.steps[*def].stmt {
                Stmt::Assign { value: Rvalue::Build { items, .. }, .. } if items.is_empty() => true,
                _ => self.made_at(view, flow, *def).is_some_and(|(local, _)| local == list),
            };
            let exchanged = view.readers(list).iter().any(|i| {
                let value = view.value(*i);
                value.is_some_and(|value| {
                    let sets = matches!(value, Rvalue::CallMethod { name, .. } if name.starts_with("broadcast"));
                    sets || view.callee(value).is_some_and(|path| {
                        path.contains("broadcast_object_list") || path.contains("all_gather_object")
                    })
                })
            });
            if exchanged || !view.defs(list).iter().all(differs) {
                self.lists.remove(&list);
            }
        }
        self
    }

    fn chosen(&self, ranks: &Operand) -> Option<usize> {
        near::local(ranks).and_then(|local| self.lists.get(&local).copied())
    }

    /// The list that a step makes differ, and the step that decides how.
    fn made_at(&self, view: &View<'_>, flow: &Flow, step: usize) -> Option<(LocalId, usize)> {
        // Inside a loop over all ranks or all groups: those for which a test on the own rank holds.
        let picked = || {
            let guard = view.steps[step].guards.iter().find(|g| g.holds && flow.is_test(g.test))?;
            let tested = view.test_of(guard)?;
            (!view.steps[tested].loops.is_empty()).then_some(tested)
        };
        match view.steps[step].stmt {
            Stmt::Append { collection, value, .. } => {
                let own = flow.has(value).then_some(step);
                own.or_else(picked).map(|at| (*collection, at))
            }
            Stmt::Assign { dst, value } => match value {
                Rvalue::CallMethod { base, name, args } if name == "append" || name == "extend" => {
                    let given = args.first()?;
                    let own = (flow.has(&given.value) || self.chosen(&given.value).is_some()).then_some(step);
                    own.or_else(picked).and_then(|at| Some((near::local(base)?, at)))
                }
                // Bound again and again, and kept once.
                Rvalue::Use(_) if !view.is_temp(*dst) && view.defs(*dst).len() <= 2 && picked().is_some() => {
                    picked().map(|at| (*dst, at))
                }
                value => self.differs(view, flow, value, step).map(|at| (*dst, at)),
            },
            _ => None,
        }
    }

    fn differs<'a>(&self, view: &View<'a>, flow: &Flow, value: &'a Rvalue, step: usize) -> Option<usize> {
        match value {
            Rvalue::Use(o) => self.chosen(o),
            Rvalue::Build { kind: BuildKind::List | BuildKind::Tuple | BuildKind::Slice, items } => {
                let own = |item: &Item| matches!(item, Item::One(o) if flow.has(o));
                (items.len() > 1 && items.iter().any(own)).then_some(step)
            }
            Rvalue::Item { index, .. } => (flow.has(index) || self.chosen(index).is_some()).then_some(step),
            Rvalue::Binary { left, right, .. } => self.chosen(left).or_else(|| self.chosen(right)),
            Rvalue::Call { args, .. } => {
                let path = view.callee(value)?;
                let name = path.trim_start_matches("builtins.");
                if name == "range" && args.len() > 1 && args.iter().any(|a| flow.has(&a.value)) {
                    return Some(step);
                }
                SAME.contains(&name).then(|| args.first().and_then(|a| self.chosen(&a.value))).flatten()
            }
            _ => None,
        }
    }
}
