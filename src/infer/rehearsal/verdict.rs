//! What the ranks of a small job do, compared. In: a function that makes groups. Out: the first configuration in which the groups do not fit
//! the ranks, as [`Rehearsed`]. Never: a configuration that the function refuses, or one of which a rank meets something unknown.
//! Source: torch.distributed, `new_group`: every rank makes the same groups in the same order; ranks are those among all. Next: `mod.rs`.

use super::calls::Given;
use super::choice::{Choice, is_given_group};
use super::held::{last_made, same_members};
use super::run::{Kept, Made, Misjudged, Run};
use super::value::Val;
use crate::ir::Stmt;
use crate::project::{FuncRef, Project};
use crate::rules::RuleBook;
use crate::source::{Name, Place};

/// Ranks of the job that is rehearsed: three axes of two.
pub const RANKS: i64 = 8;

/// Ends of names of functions that give a rank of a group among all ranks, and what ends the name of the function that gives the group.
const MEMBERS: &[&str] = &["_src_rank"];
const GROUP: &str = "_group";

/// Groups that do not fit the ranks, in one configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Rehearsed {
    /// Parameters that are numbers of ranks, with their values.
    pub configuration: Vec<(Name, i64)>,
    pub misfit: Misfit,
    /// Where the ranks of the group that is shown are computed, if not where it is made.
    pub computed: Option<Place>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Misfit {
    /// At the same call one rank makes a group and another rank another one, or none.
    NotAlike { rank: i64, ranks: Vec<i64>, other: i64, instead: Vec<i64> },
    /// A rank is in two groups that a variable is to hold, and holds the second, which a member of it does not.
    Overlap { variable: Name, rank: i64, first: Vec<i64>, second: Vec<i64>, member: i64 },
    /// A rank takes a group for its own that it is not in: another number of it was looked for.
    NotMember { variable: Name, rank: i64, number: i64, ranks: Vec<i64>, tested: Place },
    /// A rank holds the last of the groups that a call makes, or is given it (no variable), and is in another one.
    LastMade { variable: Option<Name>, rank: i64, ranks: Vec<i64>, own: Vec<i64> },
    /// Groups for different parts of the model and for copies of the same have more than one rank in common.
    SameMembers { variables: (Name, Name), rank: i64, member: i64, ranks: (Vec<i64>, Vec<i64>) },
    /// The rank that a collective names is not in the group that a rank has there.
    RootOutside { collective: Name, root: i64, rank: i64, ranks: Vec<i64> },
    /// A rank that a function gives is not in the group that another one gives.
    SourceOutside { function: Name, group: Name, rank: i64, source: i64, ranks: Vec<i64> },
}

/// A collective that starts at, or ends on, one rank of all, over a group that the rehearsed function makes.
#[derive(Clone, Debug)]
pub struct Rooted {
    pub collective: Name,
    pub root: i64,
    pub group: Holder,
    pub at: Place,
}

/// What gives a group.
#[derive(Clone, Debug)]
pub enum Holder {
    Function(FuncRef),
    /// A name of the module of the rehearsed function.
    Variable(Name),
}

/// The first configuration in which something does not fit. `rooted`: asked only where the function comes to its end on all ranks.
pub fn rehearse(
    project: &Project,
    rules: &RuleBook,
    at: FuncRef,
    rooted: &dyn Fn() -> Vec<Rooted>,
) -> Option<(Place, Rehearsed)> {
    let mut collectives: Option<Vec<Rooted>> = None;
    let func = project.func(at);
    let choice = Choice::new(project, at)?;
    let mut steps = 0;
    for variant in choice.variants() {
        let mut ranks = Vec::new();
        for rank in 0..RANKS {
            let mut run = Run::new(project, rules, (rank, RANKS));
            if !choice.executed(&mut run, &variant, at).ok()? {
                break;
            }
            steps += run.steps();
            if steps > super::super::limits::MAX_REHEARSED * 8 {
                return None;
            }
            if run.made.is_empty() {
                break;
            }
            ranks.push(run);
        }
        if ranks.len() != usize::try_from(RANKS).unwrap_or(0) {
            continue;
        }
        // Who is in a group that a caller gives is not known: it may be all ranks.
        let is_given = choice.is_given_rank() || func.params.iter().any(is_given_group);
        let alike = if is_given { None } else { not_alike(&ranks) };
        let found = alike.or_else(|| not_member(&ranks, is_given)).or_else(|| overlap(&ranks));
        let found = found.or_else(|| last_made(&ranks)).or_else(|| same_members(&ranks));
        let found = found.or_else(|| source_outside(project, &mut ranks, at));
        let found = found.or_else(|| root_outside(&mut ranks, at, collectives.get_or_insert_with(rooted)));
        if let Some((place, misfit)) = found {
            return Some((place, Rehearsed { configuration: choice.named(&variant), misfit, computed: None }));
        }
    }
    None
}

fn not_alike(runs: &[Run<'_>]) -> Option<(Place, Misfit)> {
    let first = runs.first()?;
    runs.iter().skip(1).find_map(|run| {
        let length = first.made.len().max(run.made.len());
        let several =
            |run: &Run<'_>, i: usize| run.made.get(i).map(|m| m.ranks.clone()).filter(|ranks| ranks.len() > 1);
        let differs = |i: &usize| several(first, *i) != several(run, *i);
        let i = (0..length).find(differs)?;
        let (mine, theirs) = (first.made.get(i), run.made.get(i));
        let at = mine.or(theirs)?.at;
        let ranks = |m: Option<&Made>| m.map_or_else(Vec::new, |m| m.ranks.clone());
        let misfit = Misfit::NotAlike { rank: first.rank, ranks: ranks(mine), other: run.rank, instead: ranks(theirs) };
        Some((at, misfit))
    })
}

fn not_member(runs: &[Run<'_>], given: bool) -> Option<(Place, Misfit)> {
    runs.iter().find_map(|run| {
        let outside = |kept: &&Kept| !kept.group.ranks.contains(&run.rank);
        run.kept.iter().filter(outside).find_map(|kept| {
            let same = |ranks: &[i64]| {
                let mut sorted = ranks.to_vec();
                sorted.sort_unstable();
                sorted == kept.group.ranks
            };
            // The number that the rank has in a group that was given, or that of a round; another rank may be meant.
            let inside = |m: &Misjudged| given && m.number == run.rank % (RANKS / 2);
            let judged = run.misjudged.iter().find(|m| same(&m.ranks) && (m.of_loop || inside(m)))?;
            let (variable, ranks) = (kept.name.clone(), kept.group.ranks.clone());
            let misfit =
                Misfit::NotMember { variable, rank: run.rank, number: judged.number, ranks, tested: judged.at };
            Some((kept.group.made.unwrap_or(kept.at), misfit))
        })
    })
}

fn overlap(runs: &[Run<'_>]) -> Option<(Place, Misfit)> {
    let last = |run: &Run<'_>, name: &Name| run.kept.iter().rfind(|k| k.name == *name).map(|k| k.group.clone());
    // Groups that are all kept may overlap.
    if runs.iter().any(|run| run.stored) {
        return None;
    }
    runs.iter().find_map(|run| {
        run.kept.iter().enumerate().find_map(|(i, kept)| {
            let before = kept.before.as_ref()?;
            let is_last = !run.kept[i + 1..].iter().any(|k| k.name == kept.name);
            let apart = |other: &&Run<'_>| {
                let theirs = last(other, &kept.name);
                let member = kept.group.ranks.contains(&other.rank);
                member && theirs.is_some_and(|g| g.ranks.contains(&other.rank) && g.ranks != kept.group.ranks)
            };
            let member = runs.iter().find(apart).filter(|_| is_last)?;
            let (variable, rank, member) = (kept.name.clone(), run.rank, member.rank);
            let (first, second) = (before.ranks.clone(), kept.group.ranks.clone());
            Some((kept.group.made?, Misfit::Overlap { variable, rank, first, second, member }))
        })
    })
}

/// Where a function returns at its end, or its name.
fn returned(project: &Project, at: FuncRef) -> Place {
    let func = project.func(at);
    let span = match func.body().last() {
        Some(node) if matches!(node.stmt, Stmt::Return { .. }) => func.spans().of(node.id),
        _ => func.name_span,
    };
    Place { file: project.file(at.module), span }
}

fn source_outside(project: &Project, runs: &mut [Run<'_>], at: FuncRef) -> Option<(Place, Misfit)> {
    let functions = runs.first()?.functions(at.module);
    let callable = |at: FuncRef| project.func(at).params.iter().all(|p| p.has_default);
    for (name, source) in functions.iter().filter(|(_, at)| callable(*at)) {
        let Some(stem) = MEMBERS.iter().find_map(|end| name.strip_suffix(end)) else { continue };
        let wanted = format!("{stem}{GROUP}");
        let Some((group, of)) = functions.iter().find(|(n, at)| **n == *wanted && callable(*at)) else { continue };
        for run in runs.iter_mut() {
            let Some(Val::Group(members)) = run.call_closure(&run.plain(*of), Given::default()).ok()? else { break };
            let Some(Val::Int(number)) = run.call_closure(&run.plain(*source), Given::default()).ok()? else { break };
            if members.ranks.contains(&run.rank) && !members.ranks.contains(&number) {
                let place = returned(project, *source);
                let misfit = Misfit::SourceOutside {
                    function: name.clone(),
                    group: group.clone(),
                    rank: run.rank,
                    source: number,
                    ranks: members.ranks.clone(),
                };
                return Some((place, misfit));
            }
        }
    }
    None
}

fn root_outside(runs: &mut [Run<'_>], at: FuncRef, rooted: &[Rooted]) -> Option<(Place, Misfit)> {
    rooted.iter().find_map(|call| {
        runs.iter_mut().find_map(|run| {
            let held = match &call.group {
                Holder::Function(getter) => run.call_closure(&run.plain(*getter), Given::default()).ok()??,
                Holder::Variable(name) => run.globals.get(&(at.module, name.clone()))?.clone(),
            };
            let Val::Group(group) = held else { return None };
            let outside = group.ranks.contains(&run.rank) && !group.ranks.contains(&call.root);
            outside.then(|| {
                let (collective, ranks) = (call.collective.clone(), group.ranks.clone());
                (call.at, Misfit::RootOutside { collective, root: call.root, rank: run.rank, ranks })
            })
        })
    })
}
