//! Softmaxes that are put together by hand from parts of the ranks. In: a function that communicates. Out: the largest, the sum of exponentials or the
//! entry of the label, of which one is reduced over ranks as it has to be and another not at all, otherwise, or over other ranks. Never: a piece
//! that anything which is not followed has, or that goes another way in one branch. Source: Megatron-LM, `_VocabParallelCrossEntropy`.
//! Next: `piece_flow.rs`.

use super::found::Practice;
use super::other_axes::apart;
use super::piece_flow::Flow;
use super::piece_values::{Does, Form, Over, Piece, PieceId, Reduced, Tests};
use super::pieces::{Apart, Named, What};
use super::view::View;
use super::{Found, own_largest, this_rank};
use crate::source::Name;

/// Words of tests that ask whether there is anything to communicate.
const NEUTRAL: &[&str] = &["size", "world", "none", "initialized", "group", "available", "> 1"];

/// `all_reduce(m, MAX)`, `all_reduce(entry)`, `loss = (x - m).exp().sum(-1).log() - entry`
pub fn judged(view: &View<'_>, out: &mut Found) {
    let flow = Flow::of(view);
    let totals = (0..flow.pieces.len()).filter(|id| flow.pieces[*id].what == What::Total);
    let mut missing = Vec::new();
    for total in totals {
        let all = family(&flow, total);
        let groups = all.iter().filter(|id| flow.pieces[**id].what == What::Total).count();
        // Beside another sum of the same exponentials nobody knows which one is meant.
        if groups > 1 {
            continue;
        }
        let pieces: Vec<&Piece> = all.iter().map(|id| &flow.pieces[*id]).collect();
        let (left, other) = (not_reduced(&pieces, view, &mut missing), otherwise(&pieces, view, out));
        if !left && !other {
            elsewhere(&pieces, view, out);
        }
    }
    if missing.is_empty() {
        return;
    }
    let mut known = Vec::new();
    own_largest::sums(view, &mut known);
    this_rank::partial(view, &mut known);
    if known.is_empty() {
        out.append(&mut missing);
    }
}

/// The pieces of one softmax: a sum, the largest that was taken off before, and the entries of the same row.
fn family(flow: &Flow, total: PieceId) -> Vec<PieceId> {
    let row = flow.pieces[total].row;
    let belongs = |id: PieceId| {
        let piece = &flow.pieces[id];
        match piece.what {
            What::Largest => row.by == Some(id),
            What::Total => piece.row.of == row.of && piece.row.by == row.by,
            What::Entry => {
                let same = piece.row.of == row.of && (piece.row.by.is_none() || piece.row.by == row.by);
                same && matches!(piece.row.form, Form::Plain) || piece.row.form == Form::LogShares(total)
            }
        }
    };
    (0..flow.pieces.len()).filter(|id| belongs(*id)).collect()
}

/// What a reduction of a piece has to do.
fn needed(what: What) -> Does {
    match what {
        What::Largest => Does::Largest,
        What::Total | What::Entry => Does::Sum,
    }
}

fn is_right(piece: &Piece) -> bool {
    matches!(piece.reduced.as_slice(), [one] if one.does == needed(piece.what))
}

fn named(piece: &Piece) -> Named {
    Named { what: piece.what, name: piece.name.clone() }
}

/// A piece that nothing reduces, beside those that are.
fn not_reduced(pieces: &[&Piece], view: &View<'_>, out: &mut Found) -> bool {
    let left: Vec<&&Piece> = pieces.iter().filter(|piece| piece.reduced.is_empty()).collect();
    let piece = match left[..] {
        [] => return false,
        [piece] => piece,
        // Where it lacks both, their difference is all that is left of them.
        [a, b] if [a, b].iter().all(|p| p.what != What::Largest && !p.is_told && !p.used.is_empty()) => {
            if a.what == What::Total { a } else { b }
        }
        _ => return true,
    };
    let Some(used) = piece.used.first().filter(|_| !piece.is_told) else { return true };
    // The others have to be whole: they are what says that this one is not.
    let others: Vec<&&Piece> = pieces.iter().filter(|other| !other.reduced.is_empty()).collect();
    let evidence = match piece.what {
        What::Largest => others.iter().find(|other| other.what == What::Total && !other.used.is_empty()),
        What::Total => others.iter().find(|other| other.what != What::Total),
        What::Entry => others.iter().find(|other| other.what == What::Total),
    };
    let whole = others.iter().all(|other| is_right(other));
    if let (Some(other), true) = (evidence, whole) {
        let reduced = &other.reduced[0];
        let seen = used.within == view.at || reduced.within == view.at;
        if seen && is_reached(&reduced.tests, &used.tests) {
            let mistake =
                Apart::NotReduced { piece: named(piece), made: piece.made, other: named(other), reduced: reduced.at };
            out.push((used.at, Practice::Apart(mistake)));
        }
    }
    true
}

/// A piece whose reduction is another one, beside one that is right.
fn otherwise(pieces: &[&Piece], view: &View<'_>, out: &mut Found) -> bool {
    let mut any = false;
    for piece in pieces {
        let [Reduced { does, at, within, tests, .. }] = piece.reduced.as_slice() else { continue };
        let given = match does {
            Does::Other(name) => name.clone(),
            Does::Sum => Name::from("SUM"),
            Does::Largest => Name::from("MAX"),
            Does::Unknown => continue,
        };
        if *does == needed(piece.what) {
            continue;
        }
        any = true;
        let sums = |other: &&&Piece| other.what == What::Total || piece.what == What::Total;
        let right = |other: &&&Piece| other.what != piece.what && is_right(other) && sums(other);
        let is_used = !piece.used.is_empty() || piece.what == What::Entry && piece.row.form != Form::Plain;
        let Some(other) = pieces.iter().find(right).filter(|_| is_used) else { continue };
        let beside = &other.reduced[0];
        if (*within == view.at || beside.within == view.at) && !excludes(tests, &beside.tests) {
            let mistake = Apart::OtherReduction { piece: named(piece), given, other: named(other), reduced: beside.at };
            out.push((*at, Practice::Apart(mistake)));
        }
    }
    any
}

/// A piece that is reduced over other ranks than the others.
fn elsewhere(pieces: &[&Piece], view: &View<'_>, out: &mut Found) {
    let reduced: Option<Vec<(&Piece, &Reduced)>> = pieces
        .iter()
        .map(|piece| match piece.reduced.as_slice() {
            [one] if !piece.used.is_empty() || piece.what == What::Entry => Some((*piece, one)),
            _ => None,
        })
        .collect();
    let Some(reduced) = reduced.filter(|all| all.len() > 1) else { return };
    let axes = |over: &Over| match over {
        Over::Axes(axes) => axes.clone(),
        Over::All | Over::Unknown => Vec::new(),
    };
    let differs = |a: &Over, b: &Over| match (a, b) {
        (Over::Axes(a), Over::Axes(b)) => apart(a, b),
        (Over::All, Over::Axes(axes)) => is_of_model(axes),
        _ => false,
    };
    let differ = |a: usize, b: usize| {
        let (one, other) = (reduced[a].1, reduced[b].1);
        (differs(&one.over, &other.over) || differs(&other.over, &one.over)) && one.tests == other.tests
    };
    // The one that differs from all others, which agree; of two, the one that is not over the ranks of a layer, or the later.
    let odd = |at: usize| {
        let mut others = (0..reduced.len()).filter(|i| reduced[*i].1.at != reduced[at].1.at);
        let Some(first) = others.next() else { return false };
        let same = |other: usize| reduced[other].1.over == reduced[first].1.over;
        differ(at, first) && others.all(same)
    };
    let all: Vec<usize> = (0..reduced.len()).filter(|at| odd(*at)).collect();
    let over_layer = |at: &&usize| is_of_model(&axes(&reduced[**at].1.over));
    let Some(at) = all.iter().find(|at| !over_layer(at)).or(all.last()).copied() else { return };
    let Some(beside) = (0..reduced.len()).find(|other| differ(at, *other)) else { return };
    let ((piece, one), (other, beside)) = (reduced[at], reduced[beside]);
    if one.within == view.at || beside.within == view.at {
        let mistake = Apart::OtherRanks {
            piece: named(piece),
            over: axes(&one.over),
            other: named(other),
            others: axes(&beside.over),
            reduced: beside.at,
        };
        out.push((one.at, Practice::Apart(mistake)));
    }
}

/// Whether parts of a layer are on the ranks of a group, and other data on the others.
fn is_of_model(axes: &[Name]) -> bool {
    matches!(axes, [axis] if matches!(axis.as_str(), "tp" | "etp"))
}

fn excludes(a: &Tests, b: &Tests) -> bool {
    a.iter().any(|(test, holds)| b.iter().any(|(other, otherwise)| test == other && holds != otherwise))
}

/// Whether a reduction is done wherever a value is used, and the value used wherever it is: what some ranks take alone may be their share.
/// Tests that ask whether there are other ranks say nothing.
fn is_reached(reduction: &Tests, used: &Tests) -> bool {
    let neutral = |test: &str| {
        let test = test.to_lowercase();
        NEUTRAL.iter().any(|word| test.contains(word)) && !test.contains("rank")
    };
    let within = |a: &Tests, b: &Tests| a.iter().all(|test| neutral(&test.0) || b.contains(test));
    !excludes(reduction, used) && within(reduction, used) && within(used, reduction)
}
