//! What a program does to values that a collective is not made for, and means to. In: a collective in the text of its function. Out: whether
//! the lines after it put right what it does: terms that are gathered are added, equal values that are gathered are compared, equal values that
//! are summed are divided by the number of ranks. Never: lines that only come near it. Next: `collective.rs`, which asks.

use super::collective::Call;
use super::machine::Machine;
use super::value::Value;
use crate::ir::StmtId;
use crate::source::Name;
use crate::types::{AxisSet, AxisType};

/// How two values are compared.
const COMPARES: &[&str] = &["equal(", "allclose(", "assert ", "assert_close(", "!=", "==", ".std(", ".var("];

/// How far apart they are.
const DISTANCES: &[&str] = &["abs(", "norm(", "max(", "pow(", "square("];

/// Words in names of numbers of ranks.
const RANKS: &[&str] = &["world", "rank", "replica"];

/// What is asked of a value that is not its numbers.
const MEASURES: &[&str] = &["len(", ".shape", ".size(", ".dtype", ".numel("];

impl Machine<'_> {
    /// Whether the lines after a collective say that what it does is meant.
    pub(super) fn is_on_purpose(&self, id: StmtId, call: &Call<'_>, set: AxisType) -> bool {
        let place = self.place(id);
        let Some(active) = self.stack.last() else { return false };
        let func = self.project.func(active.func);
        if !func.span.contains(place.span.start) {
            return false;
        }
        let text = self.files[place.file].whole();
        let before = &text[func.span.start as usize..place.span.start as usize];
        let (own, after) = (&text[place.span.start as usize..], &text[place.span.end as usize..func.span.end as usize]);
        let rest = after.lines().next().unwrap_or_default();
        let is_equal = set.leq(AxisType::EQUAL);
        let reduces = matches!(call.rule.op.as_str(), "all_reduce" | "reduce_scatter");
        if reduces && is_equal && rest.trim_start().starts_with('/') {
            return self.may_be_divided(rest.trim_start(), &call.axes);
        }
        let given = before.rsplit('\n').next().unwrap_or_default().trim().strip_suffix('=').map(str::trim);
        let first =
            own.split_once('(').map_or("", |(_, rest)| rest).split([',', ')']).next().unwrap_or_default().trim();
        let name = given.unwrap_or(first);
        if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.')) {
            return false;
        }
        let mut lines = after.lines().skip(1).filter(|line| says(line, name));
        let exchanges = matches!(call.rule.op.as_str(), "all_gather" | "all_to_all");
        if exchanges && set.leq(AxisType::P) {
            return rest.starts_with(".sum(") || lines.any(|line| adds_up(line, name)) || adds_each(after, name);
        }
        if exchanges && is_equal && !call.rule.differentiable {
            return is_compared(after, name);
        }
        let given = &text[self.part(id, call.part).span.start as usize..self.part(id, call.part).span.end as usize];
        let divided = || given.rsplit_once('/').is_some_and(|(_, by)| self.is_divided(&format!("/{by}"), &call.axes));
        reduces
            && is_equal
            && !call.rule.differentiable
            && (divided() || lines.next().is_some_and(|line| self.divides_by_ranks(line, name, &call.axes)))
    }

    /// Whether what follows a call divides its result by what may be the number of ranks: that, or what the function is given.
    fn may_be_divided(&self, rest: &str, axes: &AxisSet) -> bool {
        let word = rest.trim_start_matches('/').trim_start();
        let word: String = word.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let counts = matches!(word.as_str(), "n" | "num" | "count") || RANKS.iter().any(|of| word.contains(of));
        self.is_divided(rest, axes) || counts && matches!(self.named_value(&word), Some(Value::Sym(_) | Value::Unknown))
    }

    /// Whether a line divides a value by the number of ranks of a group.
    fn divides_by_ranks(&self, line: &str, name: &str, axes: &AxisSet) -> bool {
        let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
        let places = line.match_indices(name).map(|(at, _)| at).filter(|at| !line[..*at].ends_with(word));
        places.into_iter().any(|at| self.is_divided(line[at + name.len()..].trim_start(), axes))
    }

    /// Whether what follows a name divides it by the number of ranks.
    fn is_divided(&self, rest: &str, axes: &AxisSet) -> bool {
        let divisor = rest.strip_prefix("/=").or_else(|| rest.strip_prefix('/')).or_else(|| {
            let called = rest.strip_prefix(".div_(").or_else(|| rest.strip_prefix(".div("))?;
            Some(called.split(')').next().unwrap_or(called))
        });
        let Some(divisor) = divisor.map(str::trim) else { return false };
        let word: String = divisor.chars().take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '.')).collect();
        matches!(self.named_value(&word), Some(Value::Size(own)) if own == *axes)
    }

    /// What a variable of the function, or an attribute of its `self`, is now.
    fn named_value(&self, word: &str) -> Option<Value> {
        let locals = self.func().locals();
        let local = |name: &str| locals.iter_enumerated().find(|(_, l)| l.name == name).map(|(at, _)| self.local(at));
        match word.split_once('.') {
            None => local(word),
            Some((base, attr)) => match local(base)? {
                Value::Object(id) => self.w.heap.object(id)?.get(&Name::from(attr)).cloned(),
                _ => None,
            },
        }
    }
}

/// Whether a line adds up what a name stands for: `torch.stack(parts).sum(0)`, `sum(parts)`, `got.unflatten(0, (n, -1)).sum(0)`.
fn adds_up(line: &str, name: &str) -> bool {
    let code = line.split('#').next().unwrap_or(line);
    let joined = ["cat(", "print(", "log", "cumsum("].iter().any(|word| code.contains(word));
    let after = code.split_once(name).map_or("", |(_, rest)| rest);
    !joined && (after.contains(".sum(") || code.contains(&format!("sum({name}")))
}

/// Whether a loop over what a name stands for adds each of it: `for part in parts: total.add_(part)`.
fn adds_each(after: &str, name: &str) -> bool {
    let mut lines = after.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let Some((each, of)) = line.strip_prefix("for ").and_then(|rest| rest.split_once(" in ")) else { continue };
        if of.trim_end_matches(':') == name {
            let next = lines.next().unwrap_or_default();
            return [format!("add_({each})"), format!("+= {each}"), format!("+ {each}")]
                .iter()
                .any(|how| next.contains(how));
        }
    }
    false
}

/// Whether the lines behind an exchange compare what a name stands for, or what is made of it.
fn is_compared(after: &str, name: &str) -> bool {
    let measures = |line: &str| MEASURES.iter().any(|word| line.contains(word));
    let differs = |line: &str| line.contains(" - ") && DISTANCES.iter().any(|word| line.contains(word));
    let compares = |line: &str| COMPARES.iter().any(|word| line.contains(word)) || differs(line);
    let mut names = vec![name.to_owned()];
    for line in after.lines().skip(1).filter(|line| !line.trim_start().starts_with('#')) {
        if !names.iter().any(|name| says(line, name)) {
            continue;
        }
        if compares(line) && !measures(line) {
            return true;
        }
        let looped = line.trim().strip_prefix("for ").and_then(|rest| rest.split_once(" in "));
        let assigned = line.trim().split_once(" = ");
        let word = |made: &&str| made.chars().all(|c| c.is_alphanumeric() || c == '_');
        names.extend(looped.or(assigned).map(|(made, _)| made).filter(word).map(str::to_owned));
    }
    false
}

/// Whether a line has a name, as a word of its own.
fn says(line: &str, name: &str) -> bool {
    let word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(name).any(|(at, _)| !line[..at].ends_with(word) && !line[at + name.len()..].starts_with(word))
}
