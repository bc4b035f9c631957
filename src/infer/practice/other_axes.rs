//! Groups of other axes than the argument asks for. In: a function. Out: an argument whose name is that of the group of some axes
//! (`data_parallel_group=`), and a getter of a group of other axes in its place. Never: groups of which one may hold the other, those of
//! experts for those of the same axis, or a getter that neither a rule nor its own name tells of. Next: `asked_group.rs`.

use super::Found;
use super::expr::Expr;
use super::found::Practice;
use super::lost::last;
use super::named_axes::{by_name, of_group};
use super::near;
use super::slips::Slip;
use super::view::View;
use crate::ir::{ArgKind, Operand, Rvalue};
use crate::rules::{Entry, Gives};
use crate::source::{Name, Place};

/// `Init(data_parallel_group=mpu.get_sequence_parallel_group())`
pub fn given(view: &View<'_>, out: &mut Found) {
    for i in 0..view.steps.len() {
        let Some(Rvalue::Call { args, .. } | Rvalue::CallMethod { args, .. }) = view.value(i) else { continue };
        for (n, arg) in args.iter().enumerate() {
            let ArgKind::Keyword(name) = &arg.kind else { continue };
            let Some(named) = by_name(name, Gives::Group) else { continue };
            let got = getters(view, i, &arg.value).into_iter().find(|(_, axes)| apart(&named, axes));
            if let Some((at, given)) = got {
                let asked = view.part(view.steps[i].id, n + 1);
                let (at, asked) = at.map_or((asked, None), |at| (at, Some(asked)));
                out.push((at, Practice::Slips(Slip::OtherAxes { parameter: name.clone(), named, given, asked })));
            }
        }
    }
}

/// The getters that a value comes from, with their axes.
fn getters(view: &View<'_>, step: usize, value: &Operand) -> Vec<(Option<Place>, Vec<Name>)> {
    let known = |e: &Expr| {
        let Expr::Call { callee, .. } = e else { return None };
        let path = near::path(view, callee)?;
        match view.rules.get(&path) {
            Some(Entry::Group(rule)) if rule.gives == Gives::Group => of_group(view, e),
            Some(_) => None,
            None => {
                let name = last(&path);
                by_name(&name, Gives::Group).filter(|_| name.contains("get_"))
            }
        }
    };
    match view.expr(value) {
        Expr::Local(local) if !view.is_param(local) => {
            let bound = view.defs(local).iter().filter(|def| **def < step);
            bound
                .filter_map(|def| Some((Some(view.place(view.steps[*def].id)), known(&view.bound(*def, local))?)))
                .collect()
        }
        e => known(&e).map(|axes| (None, axes)).into_iter().collect(),
    }
}

/// An axis, without whether its ranks are those of experts.
fn plain(axis: &Name) -> &str {
    match axis.as_str() {
        "etp" => "tp",
        "edp" | "dp_replicate" | "dp_shard" | "fsdp" => "dp",
        other => other,
    }
}

/// Whether two groups have no axis in common, and each has one that says what it is for.
pub(super) fn apart(named: &[Name], given: &[Name]) -> bool {
    const KNOWN: &[&str] = &["dp", "tp", "cp", "sp", "pp"];
    let known = |axes: &[Name]| !axes.is_empty() && axes.iter().all(|a| KNOWN.contains(&plain(a)));
    // The ranks with the parts of a sequence are called so, or so.
    let same = |a: &Name, b: &Name| {
        let (a, b) = (plain(a), plain(b));
        a == b || matches!((a, b), ("cp", "sp") | ("sp", "cp") | ("tp", "sp") | ("sp", "tp"))
    };
    known(named) && known(given) && !named.iter().any(|a| given.iter().any(|b| same(a, b)))
}
