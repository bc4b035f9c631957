//! Gradients of experts that are averaged over the ranks with copies of them, beside others that are averaged over all data ranks. In: a function that
//! reduces gradients. Out: a mean over the ranks with copies alone, by the collective or by the size of its group: the tokens of all data ranks have
//! reached the experts, so their gradients are too large by the number of expert-parallel ranks. Also a gradient that is divided before it is given to
//! what divides again. Never: a file in which anything else scales gradients, counts expert-parallel ranks for more than to keep them, or hooks.
//! Source: DESIGN.md section 6, expert gradients; Megatron-LM, DeepSpeed pull request 4957. Next: `expert_mean.rs`.

use super::Found;
use super::expert_mean::EXPERTS;
use super::expr::Expr;
use super::found::{Practice, Scales};
use super::near;
use super::reducers::is_gradient;
use super::view::{CollectiveCall, Guard, View};
use super::wrapped::{call, function, says};
use crate::ir::{ArgKind, BinOp, Const, LocalId, Operand, Rvalue, Stmt};
use crate::project::FuncRef;
use crate::source::Place;

/// What may scale gradients where it is not followed.
const HIDDEN: &[&str] =
    &["_hook(", "all_to_all", "_foreach_", "set_gradient_divide_factor", "lr_scale", "setattr(", "custom_op"];
/// How numbers are scaled.
const SCALES: &[&str] = &[".div", ".mul", " / ", " * ", "/=", "*=", "scale", "factor", "lerp", "true_divide"];
/// What makes groups or asks for the number of their ranks, and keeps no factor.
const GROUPS: &[&str] = &["get_world_size(", "new_group(", "init_device_mesh(", "get_group(", ".size()"];

/// `all_reduce(p.grad, op=AVG, group=self.group)` with another group for experts, and the same of buffers of experts beside those of others.
pub fn averaged(view: &View<'_>, out: &mut Found) {
    for (i, call) in view.collectives() {
        let reduces = call.rule.op == "all_reduce" || call.rule.op == "reduce_scatter";
        let Some(group) = call.group.filter(|_| reduces && is_mean(view, call) && reads_gradient(view, *i)) else {
            continue;
        };
        let Some(beside) = chosen(view, group, *i).or_else(|| dense_beside(view, group, *i)) else { continue };
        if !is_made_up(view, 0) && !near::has_any(view.code(), &[".div", ".mul", " / ", " * "]) {
            let place = view.place(view.steps[*i].id);
            out.push((place, Practice::Scales(Scales::ExpertCopies { beside, sized: false })));
            return;
        }
    }
}

/// `self.reduce(dense, dp_group, dp_size)` beside `self.reduce(experts, edp_group, get_world_size(edp_group))`.
pub fn handed(view: &View<'_>, out: &mut Found) {
    let calls: Vec<(usize, Sized)> = (0..view.steps.len()).filter_map(|i| Some((i, sized(view, i)?))).collect();
    for (i, experts) in calls.iter().filter(|(_, call)| call.experts) {
        let Some((dense, _)) = calls.iter().find(|(_, call)| !call.experts && call.at == experts.at) else { continue };
        let inner = near::shared(view, experts.at);
        let code = inner.code();
        let divides = code.matches(".div").count() + code.matches(" / ").count() + code.matches("/=").count() == 1;
        if divides && code.contains("reduce") && !is_made_up(view, 1) {
            let beside = view.place(view.steps[*dense].id);
            let place = view.place(view.steps[*i].id);
            out.push((place, Practice::Scales(Scales::ExpertCopies { beside, sized: true })));
            return;
        }
    }
}

/// The function of the same file that a call calls: also a method of the own class.
fn target(view: &View<'_>, value: &Rvalue) -> Option<FuncRef> {
    let (callee, _) = call(view, value)?;
    function(view, &callee).filter(|at| at.module == view.at.module)
}

/// A call that is given a group, and the number of its ranks, by which what it calls divides.
struct Sized {
    at: FuncRef,
    /// Whether the ranks are those with copies of experts.
    experts: bool,
}

fn sized(view: &View<'_>, step: usize) -> Option<Sized> {
    let value = view.value(step)?;
    let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
    let at = target(view, value)?;
    let given: Vec<Expr> = args.iter().map(|a| near::deep(view, &view.through(&a.value))).collect();
    let (count, of) = given.iter().enumerate().find_map(|(i, e)| Some((i, near::deep(view, counted(e)?))))?;
    let inner = near::shared(view, at);
    let own = usize::from(inner.func.params.first().is_some_and(|p| p.name == "self"));
    let param = match &args[count].kind {
        ArgKind::Keyword(name) => inner.func.params.iter().find(|p| p.name == *name)?,
        ArgKind::Positional => inner.func.params.get(count + own)?,
        _ => return None,
    };
    let is = |o: &Operand| *o == Operand::Local(param.local);
    let divides = (0..inner.steps.len()).any(|i| match inner.value(i) {
        Some(Rvalue::CallMethod { name, args, .. }) => {
            matches!(name.as_str(), "div_" | "div") && args.iter().any(|a| is(&a.value))
        }
        Some(Rvalue::Binary { op: BinOp::Div, right, .. } | Rvalue::InPlace { op: BinOp::Div, right, .. }) => is(right),
        _ => false,
    });
    let name = view.name_of(&of)?;
    let known = of_copies(name) || of_data(name);
    (divides && known && given.contains(&of)).then(|| Sized { at, experts: of_copies(name) })
}

/// The group whose number of ranks a value is.
fn counted(size: &Expr) -> Option<&Expr> {
    if let Some([(_, group)]) = size.call_of("get_world_size") {
        return Some(group);
    }
    match size {
        Expr::Call { callee, args, .. } if args.is_empty() => match &**callee {
            Expr::Attr(group, name) if name == "size" => Some(group),
            _ => None,
        },
        _ => None,
    }
}

/// Whether a name is that of the ranks with copies of experts: `edp_group`, `expert_data_parallel_group`.
fn of_copies(name: &str) -> bool {
    let lower = name.to_lowercase();
    let of_experts = ["expert", "expt", "moe"].iter().any(|word| lower.contains(word));
    near::has_part(&lower, "edp") || of_experts && (near::has_part(&lower, "dp") || near::has_part(&lower, "data"))
}

/// Whether a name is that of all data ranks.
fn of_data(name: &str) -> bool {
    let lower = name.to_lowercase();
    let data = near::has_part(&lower, "dp") || near::has_part(&lower, "data");
    data && !near::has_any(
        &lower,
        &["expert", "expt", "moe", "inner", "inter", "intra", "outer", "shard", "replic", "local", "pp", "node"],
    )
}

/// Whether a reduction takes the mean.
fn is_mean<'a>(view: &View<'a>, call: &CollectiveCall<'a>) -> bool {
    view.operator(call).is_some_and(|op| view.through(op).last_name() == Some("AVG"))
}

/// Whether a collective reduces gradients, by the names in it.
fn reads_gradient(view: &View<'_>, step: usize) -> bool {
    view.reads(step).iter().any(|o| {
        let value = view.through(o);
        is_gradient(&value) || value.any(&mut |e| view.name_of(e).is_some_and(|n| n.to_lowercase().contains("grad")))
    }) || near::class_of(view).is_some_and(|class| {
        let class = &view.project.modules[view.at.module].ir.classes[class];
        class.name.to_lowercase().contains("grad")
    })
}

/// Where a group is chosen by whether parameters are those of experts: in a variable here, or what the class keeps.
fn chosen(view: &View<'_>, group: &Operand, before: usize) -> Option<Place> {
    let of = view.expr(group);
    if let Some(name) = near::own_attribute(view, &of) {
        let set = near::assigned(view, near::class_of(view)?, name);
        let [(method, step, value)] = set.as_slice() else { return None };
        return is_choice(method, &near::deep(method, &method.expr(value)))
            .then(|| method.place(method.steps[*step].id));
    }
    let local = near::local(group)?;
    let defs: Vec<usize> = view.defs(local).iter().copied().filter(|d| *d < before).collect();
    if let [one] = defs[..] {
        return is_choice(view, &view.bound(one, local)).then(|| view.place(view.steps[one].id));
    }
    // A conditional expression, or a test.
    let [a, b] = defs[..] else { return None };
    let (x, y) = (view.steps[a].guards.last()?, view.steps[b].guards.last()?);
    let value = |def: usize| Box::new(view.bound(def, local));
    let choice = Expr::Choice(Box::new(view.expr(x.test)), value(a), value(b));
    (x.at == y.at && x.holds != y.holds && is_choice(view, &choice)).then(|| view.place(view.steps[a].id))
}

/// `edp_group if is_expert else dp_group`
fn is_choice(view: &View<'_>, value: &Expr) -> bool {
    let Expr::Choice(test, a, b) = value else { return false };
    let name = |e: &Expr| view.name_of(&near::deep(view, e)).or(view.name_of(e)).map(str::to_owned);
    let (Some(a), Some(b)) = (name(a), name(b)) else { return false };
    says(view, test, EXPERTS) && (of_copies(&a) && of_data(&b) || of_copies(&b) && of_data(&a))
}

/// The mean over all data ranks that a function takes beside one over the ranks with copies of experts.
fn dense_beside(view: &View<'_>, group: &Operand, step: usize) -> Option<Place> {
    let named = |o: &Operand| view.name_of(&view.through(o)).map(str::to_owned);
    named(group).filter(|name| of_copies(name))?;
    let mut others = view.collectives().iter().filter(|(at, _)| *at != step);
    let (at, _) = others
        .find(|(_, call)| is_mean(view, call) && call.group.and_then(named).is_some_and(|name| of_data(&name)))?;
    let experts = view.text(view.place(view.steps[step].id)).to_lowercase();
    EXPERTS.iter().any(|word| experts.contains(word)).then(|| view.place(view.steps[*at].id))
}

/// Whether a file may make up for a mean over fewer ranks. `known`: how many of its lines with a scaling are those that are told.
fn is_made_up(view: &View<'_>, known: usize) -> bool {
    let text = near::bare(view.file());
    if near::has_any(&text, HIDDEN)
        || ["all_to_all", "register_hook("].iter().any(|w| view.files.saying(w).next().is_some())
    {
        return true;
    }
    let scaled = |line: &&str| {
        !line.trim_start().starts_with("assert")
            && near::has_any(line, SCALES)
            && line.contains(|c: char| c.is_alphabetic())
    };
    if text.lines().filter(scaled).count() > known {
        return true;
    }
    text.lines().any(|line| !is_harmless(line.trim()))
}

/// Whether a line says nothing of the number of expert-parallel ranks, or keeps it alone.
fn is_harmless(line: &str) -> bool {
    let mut names = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let counts = names.any(|name| {
        near::has_part(name, "ep") || name.contains("expert_parallel") || name.contains("expert_model_parallel")
    });
    let compares = ["==", "!="].iter().any(|op| line.contains(op)) && near::has_any(line, &["size", "ranks"]);
    if line.starts_with("assert") || line.starts_with("if ") && compares {
        // The number of ranks of both groups is that of the other times the one of expert-parallel ranks.
        return !compares || counts && line.contains('*');
    }
    if !counts || line.starts_with("def ") {
        return true;
    }
    let kept = line.split_once('=').is_some_and(|(_, value)| {
        let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | ',' | ' ');
        value.chars().all(plain) || near::has_any(value, GROUPS)
    });
    let made = line
        .split('(')
        .next()
        .is_some_and(|head| !head.is_empty() && !head.contains(['.', '=', ' ']) && line.ends_with("),"));
    kept || made
}

/// `expert_factor = 1.0` beside `factor = 1.0` where the collective averages, and `1.0 / dp_group.size()` for both where it sums.
pub fn factors(view: &View<'_>, out: &mut Found) {
    let text = near::bare(view.file());
    let counts = |name: &str| of_copies(name) && text.contains(&format!("{}.size()", name.to_lowercase()));
    let mut names = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    if !names.any(of_copies) || names.any(counts) || !text.lines().all(|line| is_harmless(line.trim())) {
        return;
    }
    if near::has_any(&text, HIDDEN)
        || near::has_any(&text, &["expert_data_parallel_world_size", "expt_dp_size", "edp_size"])
    {
        return;
    }
    if near::refusals(&text).any(|line| near::has_any(line, &["average", "expert", "moe"])) {
        return;
    }
    let one = |e: &Expr| matches!(e, Expr::Const(Const::Float(bits)) if f64::from_bits(*bits) == 1.0);
    for local in view.func.locals().ids() {
        let name = view.local_name(local).to_lowercase();
        let Some(dense) = name.strip_prefix("expert_").or(name.strip_prefix("moe_")).filter(|n| n.contains("factor"))
        else {
            continue;
        };
        let Some(dense) = view.func.locals().named(dense) else { continue };
        let under = |l: LocalId, wanted: &dyn Fn(&Expr) -> bool, averages: bool| {
            view.defs(l).iter().copied().find(|def| {
                let guard = view.steps[*def].guards.last();
                let asked = guard.is_some_and(|g| g.holds == averages && says(view, &view.expr(g.test), &["average"]));
                asked && wanted(&view.bound(*def, l))
            })
        };
        let over_all = |e: &Expr| match e {
            Expr::Binary(BinOp::Div, _, size) => counted(size).and_then(|g| view.name_of(g)).is_some_and(of_data),
            _ => false,
        };
        let (Some(here), Some(_)) = (under(local, &one, true), under(dense, &one, true)) else { continue };
        let (Some(other), Some(_)) = (under(local, &over_all, false), under(dense, &over_all, false)) else { continue };
        // It goes with the ranks that have copies.
        let beside_group =
            |step: &usize| view.reads(*step).iter().any(|o| view.name_of(&view.expr(o)).is_some_and(of_copies));
        if text.contains("reduceop.avg") && view.readers(local).iter().any(beside_group) {
            let beside = view.place(view.steps[other].id);
            let place = view.place(view.steps[here].id);
            out.push((place, Practice::Scales(Scales::ExpertCopies { beside, sized: false })));
            return;
        }
    }
}

/// `p.grad.div_(get_world_size(group))`, and a call with `divide=True` of a method that divides again.
pub fn divided_again(view: &View<'_>, out: &mut Found) {
    let divided = (0..view.steps.len()).find_map(|i| match view.value(i) {
        Some(Rvalue::CallMethod { base, name, args }) if name == "div_" => {
            let gradient = view.expr(base).any(&mut |e| is_gradient(e));
            let size = args.first().filter(|_| gradient).map(|by| view.through(&by.value))?;
            Some((i, size.call_of("get_world_size")?.first().map(|(_, group)| group.clone())))
        }
        _ => None,
    });
    let Some((divided, over)) = divided.filter(|_| !view.file().contains("mul_(")) else { return };
    for i in divided + 1..view.steps.len() {
        let Some(value @ (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. })) = view.value(i) else {
            continue;
        };
        let Some(at) = target(view, value) else { continue };
        let inner = near::shared(view, at);
        let flag = args.iter().find_map(|a| match (&a.kind, view.expr(&a.value)) {
            (ArgKind::Keyword(name), Expr::Const(Const::Bool(true))) => Some(name),
            _ => None,
        });
        let Some(param) = flag.and_then(|name| inner.func.params.iter().find(|p| p.name == *name)) else { continue };
        let Some(again) = divides_if(&inner, param.local, 3) else { continue };
        // By another number of ranks both may make one.
        let same = args.iter().any(|a| Some(view.expr(&a.value)) == over);
        if same && view.steps[i].guards.is_empty() && is_given_gradients(view, divided, args.first().map(|a| &a.value))
        {
            let first = view.place(view.steps[divided].id);
            out.push((view.place(view.steps[i].id), Practice::Scales(Scales::DividedAgain { first, again })));
            return;
        }
    }
}

/// Whether what a call is given are gradients that were divided: the file puts them into what it loops over.
fn is_given_gradients(view: &View<'_>, divided: usize, given: Option<&Operand>) -> bool {
    let Some(given) = given.and_then(near::local) else { return false };
    let list = near::roots(view, &Operand::Local(given));
    (divided + 1..view.steps.len()).any(|step| {
        let value = match (view.steps[step].stmt, view.value(step)) {
            (Stmt::Append { collection, value, .. }, _) if list.contains(collection) => value,
            (_, Some(Rvalue::CallMethod { base, name, args })) if name == "append" => {
                let of = near::roots(view, base);
                match args.first().filter(|_| of.iter().any(|l| list.contains(l))) {
                    Some(arg) => &arg.value,
                    None => return false,
                }
            }
            _ => return false,
        };
        let (here, there) = (&view.steps[step], &view.steps[divided]);
        // What is divided in one branch is put into the list in the other.
        let apart = |g: &Guard<'_>| there.guards.iter().any(|o| o.at == g.at && o.holds != g.holds);
        here.loops == there.loops && !here.guards.iter().any(apart) && view.expr(value).any(&mut |e| is_gradient(e))
    })
}

/// Where a function divides by the number of ranks of a group, if a parameter of it holds, or hands that on to one that does.
fn divides_if(view: &View<'_>, flag: LocalId, depth: usize) -> Option<Place> {
    let depth = depth.checked_sub(1)?;
    (0..view.steps.len()).find_map(|i| {
        let value = view.value(i)?;
        let (Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = value else { return None };
        let name = near::name_of_call(view, i)?;
        let size = args.first().is_some_and(|by| view.through(&by.value).call_of("get_world_size").is_some());
        let asked = view.steps[i].guards.last().is_some_and(|g| g.holds && *g.test == Operand::Local(flag));
        if name == "div_" && size && asked {
            return Some(view.place(view.steps[i].id));
        }
        let at = target(view, value)?;
        let inner = near::shared(view, at);
        let handed = args.iter().find_map(|a| match &a.kind {
            ArgKind::Keyword(name) if a.value == Operand::Local(flag) => Some(name),
            _ => None,
        })?;
        divides_if(&inner, inner.func.params.iter().find(|p| p.name == *handed)?.local, depth)
    })
}
