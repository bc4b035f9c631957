//! How a split dim flows through an operation, by its notation (`"... m k, ... k n -> ... m n"`). In: the notation and, for each
//! operand, whether it varies and which dim is split. Out: the split dim of the result, or that the split dim is contracted, which
//! leaves a pending sum. Never: a guess: a dim that cannot be named gives [`Flow::Unknown`].
//! Source: DESIGN.md section 4, "contraction of a dim that is known to be sharded in both operands gives P". Next: `shapes.rs`.

/// An operand on one axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    pub varying: bool,
    /// From 0, or negative from the end where the rank is not known.
    pub dim: Option<i8>,
    pub rank: Option<usize>,
}

/// Where the split dim goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// To this dim of the result.
    Dim(i8),
    /// It is summed over: every rank holds a term.
    Contracted,
    Unknown,
}

/// A named dim of a notation: a letter, or a place counted from the end of the dims that `...` stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Label<'a> {
    Letter(&'a str),
    Rest(i8),
}

/// The flow of the split dim; operands beyond the terms of the notation, or missing ones, are allowed at its end only. `adds`: a term
/// after the second is added to the product of the others.
pub fn flow(notation: &str, operands: &[Split], adds: bool) -> Flow {
    let Some((inputs, output)) = notation.split_once("->") else { return Flow::Unknown };
    let terms: Vec<Vec<&str>> = inputs.split(',').map(|t| t.split_whitespace().collect()).collect();
    let output: Vec<&str> = output.split_whitespace().collect();
    if operands.len() > terms.len() {
        return Flow::Unknown;
    }
    let mut label = None;
    for (term, operand) in terms.iter().zip(operands).filter(|(_, o)| o.varying) {
        match (operand.dim.and_then(|d| label_of(term, d, operand.rank)), label) {
            (None, _) => return Flow::Unknown,
            (Some(found), None) => label = Some(found),
            (Some(found), Some(known)) if found == known => {}
            (Some(_), Some(_)) => return Flow::Unknown,
        }
    }
    let Some(label) = label else { return Flow::Unknown };
    // An operand that has the dim whole, or a term that lacks it and is added, does not fit the split.
    let whole = terms.iter().zip(operands).any(|(term, o)| !o.varying && has(term, label));
    if whole {
        return Flow::Unknown;
    }
    if let Some(dim) = place_of(&output, label) {
        return Flow::Dim(dim);
    }
    let added = adds && operands.len() > 2 && terms.iter().zip(operands).skip(2).any(|(term, _)| !has(term, label));
    if added { Flow::Unknown } else { Flow::Contracted }
}

/// Whether the split dim of an operand is one that the operation sums over together with a dim of another operand.
pub fn contracts(notation: &str, at: usize, operand: Split) -> bool {
    let Some((inputs, output)) = notation.split_once("->") else { return false };
    let terms: Vec<Vec<&str>> = inputs.split(',').map(|t| t.split_whitespace().collect()).collect();
    let output: Vec<&str> = output.split_whitespace().collect();
    let label = terms.get(at).zip(operand.dim).and_then(|(term, dim)| label_of(term, dim, operand.rank));
    let Some(label @ Label::Letter(_)) = label else { return false };
    let shared = terms.iter().enumerate().any(|(i, term)| i != at && has(term, label));
    shared && !has(&output, label)
}

/// The dim of a part that is the one which is split, where only one may be: every other one meets an operand that is whole. From the end.
pub fn sole_dim(notation: &str, at: usize, rank: Option<usize>, whole: &[bool]) -> Option<i8> {
    let (inputs, _) = notation.split_once("->")?;
    let terms: Vec<Vec<&str>> = inputs.split(',').map(|t| t.split_whitespace().collect()).collect();
    let (names, open) = letters(terms.get(at)?);
    if open && rank != Some(names.len()) {
        return None;
    }
    let met = |name: &str| terms.iter().zip(whole).any(|(term, whole)| *whole && has(term, Label::Letter(name)));
    let mut left = (0..names.len()).filter(|i| !met(names[*i]));
    let sole = left.next().filter(|_| left.next().is_none())?;
    i8::try_from(sole).ok().zip(i8::try_from(names.len()).ok()).map(|(sole, count)| sole - count)
}

/// The notation of an equation of letters (`"sbh,ehf->sbef"`), if it says its result, names every dim of a term once, and has `...` only
/// at the start of a term.
pub fn of_equation(equation: &str) -> Option<String> {
    let (inputs, output) = equation.split_once("->")?;
    let term = |text: &str| {
        let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        let (open, letters) = text.strip_prefix("...").map_or((false, text.as_str()), |rest| (true, rest));
        let all: Vec<char> = letters.chars().collect();
        let once = all.iter().enumerate().all(|(i, c)| c.is_alphabetic() && !all[..i].contains(c));
        let words = open.then(|| "...".to_string()).into_iter().chain(all.iter().map(char::to_string));
        once.then(|| words.collect::<Vec<_>>().join(" "))
    };
    let inputs: Option<Vec<String>> = inputs.split(',').map(term).collect();
    Some(format!("{} -> {}", inputs?.join(", "), term(output)?))
}

fn letters<'a, 'b>(term: &'b [&'a str]) -> (&'b [&'a str], bool) {
    match term.split_first() {
        Some((&"...", rest)) => (rest, true),
        _ => (term, false),
    }
}

fn label_of<'a>(term: &[&'a str], dim: i8, rank: Option<usize>) -> Option<Label<'a>> {
    let (letters, open) = letters(term);
    let count = i8::try_from(letters.len()).ok()?;
    let from_end = match (dim < 0, open, rank) {
        (true, _, _) => dim,
        (false, false, _) => dim - count,
        (false, true, Some(rank)) => dim - i8::try_from(rank).ok()?,
        (false, true, None) => return None,
    };
    let at = count + from_end;
    match (usize::try_from(at), open) {
        (Ok(at), _) => letters.get(at).map(|l| Label::Letter(l)),
        (Err(_), true) => Some(Label::Rest(at)),
        (Err(_), false) => None,
    }
}

fn has(term: &[&str], label: Label<'_>) -> bool {
    let (letters, open) = letters(term);
    match label {
        Label::Letter(letter) => letters.contains(&letter),
        Label::Rest(_) => open,
    }
}

fn place_of(output: &[&str], label: Label<'_>) -> Option<i8> {
    let (letters, open) = letters(output);
    let count = i8::try_from(letters.len()).ok()?;
    match label {
        Label::Letter(letter) => {
            let at = i8::try_from(letters.iter().position(|l| *l == letter)?).ok()?;
            Some(if open { at - count } else { at })
        }
        Label::Rest(at) if open => Some(at - count),
        Label::Rest(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINEAR: &str = "... k, n k, n -> ... n";

    fn split(dim: i8) -> Split {
        Split { varying: true, dim: Some(dim), rank: None }
    }
    fn whole() -> Split {
        Split { varying: false, dim: None, rank: None }
    }

    #[test]
    fn a_linear_layer_keeps_or_contracts_its_split() {
        assert_eq!(flow(LINEAR, &[whole(), split(0)], true), Flow::Dim(-1));
        assert_eq!(flow(LINEAR, &[whole(), split(0), split(0)], true), Flow::Dim(-1));
        assert_eq!(flow(LINEAR, &[split(-1), split(1)], true), Flow::Contracted);
        assert_eq!(flow(LINEAR, &[split(-1), split(1), whole()], true), Flow::Unknown);
        assert_eq!(flow(LINEAR, &[split(-1), split(0)], true), Flow::Unknown);
        assert_eq!(flow(LINEAR, &[split(0), whole()], true), Flow::Unknown);
        let known = Split { rank: Some(3), ..split(0) };
        assert_eq!(flow(LINEAR, &[known, whole()], true), Flow::Dim(-3));
    }

    #[test]
    fn a_matrix_product_contracts_its_inner_dim() {
        assert_eq!(flow("m k, k n -> m n", &[split(1), split(0)], true), Flow::Contracted);
        assert_eq!(flow("m k, k n -> m n", &[split(0), whole()], true), Flow::Dim(0));
    }

    #[test]
    fn a_whole_factor_leaves_one_dim_to_be_split() {
        assert_eq!(sole_dim(LINEAR, 1, None, &[true, false]), Some(-2));
        assert_eq!(sole_dim(LINEAR, 2, None, &[true, false, false]), Some(-1));
        assert_eq!(sole_dim(LINEAR, 1, None, &[false, false]), None);
        assert_eq!(sole_dim("... m k, ... k n -> ... m n", 1, None, &[true, false]), None);
        assert_eq!(sole_dim("... m k, ... k n -> ... m n", 1, Some(2), &[true, false]), Some(-1));
    }

    #[test]
    fn an_equation_is_a_notation() {
        assert_eq!(of_equation("sbh,ehf->sbef").as_deref(), Some("s b h, e h f -> s b e f"));
        assert_eq!(of_equation("... k, n k -> ...n").as_deref(), Some("... k, n k -> ... n"));
        assert_eq!(of_equation("ii->i"), None);
        assert_eq!(of_equation("b...i,i->b..."), None);
        assert_eq!(of_equation("ij,jk"), None);
    }

    #[test]
    fn a_third_factor_scales_a_pending_sum() {
        let three = "a k, k b, b -> a b";
        assert_eq!(flow(three, &[split(1), split(0), whole()], false), Flow::Contracted);
        assert_eq!(flow(three, &[split(1), split(0), split(0)], false), Flow::Unknown);
    }
}
