//! Operations whose dims correspond by name: notations (`"... m k, ... k n -> ... m n"`), equations of einsum, and elementwise
//! operations, which are the notation `..., ... -> ...`. In: a call. Out: where the split dim goes. Never: sizes beyond "is it one".
//! Source: DESIGN.md section 4 and 8; `rules/README.md`, key `dims`. Next: `views.rs`.

use super::{ASSUMED_RANK, Piece, Placed, Refusal, ShardCall};
use crate::rules::shapes::Given;

/// The name of a dim.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Label {
    Letter(String),
    /// The n-th from the end of the dims that `...` stands for.
    Rest(usize),
}

/// A term of a notation: whether it begins with `...`, and its letters.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    open: bool,
    letters: Vec<String>,
}

impl Term {
    fn words(text: &str) -> Term {
        let words: Vec<&str> = text.split_whitespace().collect();
        let open = words.first() == Some(&"...");
        Term { open, letters: words.iter().skip(usize::from(open)).map(|w| (*w).to_string()).collect() }
    }
    fn of_equation(text: &str) -> Term {
        let text = text.trim();
        let (open, rest) = match text.strip_prefix("...") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        Term { open, letters: rest.chars().filter(|c| !c.is_whitespace()).map(String::from).collect() }
    }
    /// The labels of a tensor of this rank; none if it does not fit.
    fn labels(&self, rank: usize, output: &Term) -> Option<Vec<Label>> {
        let mut letters = self.letters.clone();
        if rank < letters.len() {
            // A vector where a matrix may stand lacks the dim that the result would have; a term that is added lacks leading ones.
            let added = letters.iter().all(|l| output.letters.contains(l));
            while rank < letters.len() {
                let at = if added { Some(0) } else { letters.iter().position(|l| output.letters.contains(l)) };
                letters.remove(at?);
            }
        }
        let rest = rank - letters.len();
        let added = letters.iter().all(|l| output.letters.contains(l));
        if rest > 0 && !self.open && !(added && output.open) {
            return None;
        }
        let mut labels: Vec<Label> = (0..rest).rev().map(Label::Rest).collect();
        labels.extend(letters.into_iter().map(Label::Letter));
        Some(labels)
    }
}

/// By the notation of the rule; its terms are the tensor parameters, in order.
pub(super) fn by_notation(call: &ShardCall<'_>, notation: &str) -> Result<Placed, Refusal> {
    let Some((inputs, output)) = notation.split_once("->") else { return Ok(Placed::Unknown) };
    let terms: Vec<Term> = inputs.split(',').map(Term::words).collect();
    let mut order: Vec<usize> = Vec::new();
    for param in &call.rule.tensors {
        order.extend((0..call.pieces.len()).filter(|i| call.pieces[*i].param == *param));
    }
    if order.len() != call.pieces.len() || order.len() > terms.len() {
        return Ok(Placed::Unknown);
    }
    follow(call.pieces, &order, &terms, &Term::words(output), true)
}

/// By the equation of einsum, its first argument.
pub(super) fn by_equation(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    let Some(Given::Str(equation)) = call.given.first() else { return Ok(Placed::Unknown) };
    let Some((inputs, output)) = equation.split_once("->") else { return Ok(Placed::Unknown) };
    let terms: Vec<Term> = inputs.split(',').map(Term::of_equation).collect();
    if terms.len() != call.pieces.len() {
        return Ok(Placed::Unknown);
    }
    let order: Vec<usize> = (0..terms.len()).collect();
    follow(call.pieces, &order, &terms, &Term::of_equation(output), false)
}

/// Elementwise, with broadcasting from the last dim on.
pub(super) fn elementwise(call: &ShardCall<'_>) -> Result<Placed, Refusal> {
    let any = Term { open: true, letters: Vec::new() };
    let order: Vec<usize> = (0..call.pieces.len()).collect();
    follow(call.pieces, &order, &vec![any.clone(); order.len()], &any, false)
}

/// `adds`: a term without a contracted dim is added to the product of the others.
fn follow(pieces: &[Piece], order: &[usize], terms: &[Term], output: &Term, adds: bool) -> Result<Placed, Refusal> {
    if pieces.iter().any(|p| p.unknown && p.shape.rank() == 0) {
        return Ok(Placed::Unknown);
    }
    let mut labels = Vec::new();
    let mut shards = vec![None; pieces.len()];
    for (at, term) in order.iter().zip(terms) {
        let piece = &pieces[*at];
        // A term without `...` says the rank of an operand of which none is known.
        let closed = piece.unknown && !term.open;
        let rank = if closed { term.letters.len() } else { piece.shape.rank() };
        shards[*at] = match piece.shard {
            Some(dim) if closed && piece.counts_from_end() => (dim + rank).checked_sub(piece.shape.rank()),
            shard => shard,
        };
        match term.labels(rank, output) {
            Some(found) => labels.push((*at, found)),
            None => return Ok(Placed::Unknown),
        }
    }
    let split: Vec<(usize, &Label)> = labels.iter().filter_map(|(at, l)| Some((*at, l.get(shards[*at]?)?))).collect();
    let Some((_, label)) = split.first() else { return Ok(Placed::Unknown) };
    if let Some((other, _)) = split.iter().find(|(_, l)| l != label) {
        return Err(Refusal::OtherSplit(*other));
    }
    for (at, found) in &labels {
        let Some(dim) = found.iter().position(|l| l == *label) else { continue };
        let piece = &pieces[*at];
        if shards[*at] == Some(dim) {
            // Parts of different sizes are parts of dims of different sizes.
            let (first, _) = split[0];
            let size = shards[first].and_then(|d| pieces[first].size(d));
            if size.zip(piece.size(dim)).is_some_and(|(a, b)| a != b) {
                return Err(Refusal::OtherSplit(*at));
            }
            continue;
        }
        // What a product sums over has the same size on both sides; einsum stretches a dim of one element.
        let stretches = !adds || !matches!(label, Label::Letter(l) if !output.letters.contains(l));
        if stretches && piece.broadcasts(dim) {
            continue;
        }
        match piece.size(dim) {
            Some(_) => return Err(Refusal::OtherWhole(*at)),
            None => return Ok(Placed::Unknown),
        }
    }
    let rank = labels.iter().map(|(_, l)| l.iter().filter(|l| matches!(l, Label::Rest(_))).count()).max().unwrap_or(0);
    let kept: Vec<&String> = output
        .letters
        .iter()
        .filter(|l| labels.iter().any(|(_, f)| f.contains(&Label::Letter((*l).clone()))))
        .collect();
    let place = match label {
        Label::Rest(from_end) if output.open => rank.checked_sub(from_end + 1),
        Label::Rest(_) => None,
        Label::Letter(letter) => {
            let open = if output.open { rank } else { 0 };
            kept.iter().position(|l| *l == letter).map(|at| at + open)
        }
    };
    if let Some(place) = place {
        let whole = if output.open { rank } else { 0 } + kept.len();
        let assumed = labels.iter().any(|(at, found)| pieces[*at].unknown && found.len() == ASSUMED_RANK);
        return Ok(match assumed && place >= ASSUMED_RANK / 2 {
            true => Placed::FromEnd(whole - place),
            false => Placed::Split(place),
        });
    }
    let added = adds && terms.len() > 2 && labels.len() > 2 && labels.iter().any(|(_, found)| !found.contains(label));
    if added { Err(Refusal::AddedTerm) } else { Ok(Placed::Pending) }
}
