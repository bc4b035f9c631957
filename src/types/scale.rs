//! Factors of losses, gradients and counts: products of powers of group sizes, counts and numbers. In: axes and names. Out: [`Scale`], a
//! monomial or unknown, and its laws (tests/laws.rs). Never: which code carries which factor, which is `infer/scale/`.
//! Next: `infer/scale/mod.rs`.

use super::{Axis, AxisSet};
use crate::source::Name;
use smallvec::SmallVec;
use std::fmt;

/// What a factor is a power of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Factor {
    /// The number of ranks along an axis.
    Size(Axis),
    /// How much of something one rank has: tokens, samples.
    Count(Name),
    /// The number of rounds of a loop whose gradients add up.
    Rounds(Name),
    /// A number that is only known by how it is written.
    Named(Name),
}

/// A product of powers, with a rational number before it. No power is zero; sorted by factor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Monomial {
    powers: SmallVec<[(Factor, i8); 4]>,
    over: i64,
    under: i64,
}

/// A factor, or nothing known of it. Unknown absorbs: whatever it is multiplied with is unknown.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scale {
    Known(Monomial),
    Unknown,
}

/// Decimal places up to which a float is a rational number.
const PLACES: u32 = 6;

impl Monomial {
    pub fn one() -> Monomial {
        Monomial { powers: SmallVec::new(), over: 1, under: 1 }
    }

    fn rational(over: i64, under: i64) -> Option<Monomial> {
        if over == 0 || under == 0 || over == i64::MIN || under == i64::MIN {
            return None;
        }
        let g = gcd(over.unsigned_abs(), under.unsigned_abs()) as i64;
        let sign = if under < 0 { -1 } else { 1 };
        Some(Monomial { powers: SmallVec::new(), over: sign * over / g, under: sign * under / g })
    }

    fn times(&self, other: &Monomial) -> Option<Monomial> {
        let over = self.over.checked_mul(other.over)?;
        let under = self.under.checked_mul(other.under)?;
        let mut out = Monomial::rational(over, under)?;
        out.powers = self.powers.clone();
        for (factor, n) in &other.powers {
            match out.powers.binary_search_by(|(f, _)| f.cmp(factor)) {
                Ok(at) => {
                    let sum = out.powers[at].1.checked_add(*n)?;
                    if sum == 0 {
                        out.powers.remove(at);
                    } else {
                        out.powers[at].1 = sum;
                    }
                }
                Err(at) => out.powers.insert(at, (factor.clone(), *n)),
            }
        }
        Some(out)
    }

    fn inverse(&self) -> Option<Monomial> {
        let mut out = Monomial::rational(self.under, self.over)?;
        for (factor, n) in &self.powers {
            out.powers.push((factor.clone(), n.checked_neg()?));
        }
        Some(out)
    }

    /// The number before its factors.
    #[must_use]
    pub fn number(&self) -> Monomial {
        Monomial { powers: SmallVec::new(), ..*self }
    }

    /// The factors with their powers.
    pub fn powers(&self) -> impl Iterator<Item = (&Factor, i8)> {
        self.powers.iter().map(|(f, n)| (f, *n))
    }

    /// The power of a factor.
    pub fn power(&self, factor: &Factor) -> i8 {
        self.powers.iter().find(|(f, _)| f == factor).map_or(0, |(_, n)| *n)
    }

    /// Only the factors that are asked for, without the number before them.
    #[must_use]
    pub fn only(&self, wanted: impl Fn(&Factor) -> bool) -> Monomial {
        let powers = self.powers.iter().filter(|(f, _)| wanted(f)).cloned().collect();
        Monomial { powers, over: 1, under: 1 }
    }

    /// Without one of its factors.
    #[must_use]
    pub fn only_but(&self, left_out: Option<&Factor>) -> Monomial {
        let powers = self.powers.iter().filter(|(f, _)| Some(f) != left_out).cloned().collect();
        Monomial { powers, ..self.clone() }
    }

    /// Whether it is a plain number.
    pub fn is_number(&self) -> bool {
        self.powers.is_empty()
    }

    /// The sum of its powers without sign: how much there is to write.
    pub fn degree(&self) -> u32 {
        self.powers.iter().map(|(_, n)| u32::from(n.unsigned_abs())).sum()
    }
}

impl Scale {
    pub fn one() -> Scale {
        Scale::integer(1)
    }

    /// A number; zero is unknown, for nothing can be divided by it.
    pub fn integer(n: i64) -> Scale {
        Monomial::rational(n, 1).map_or(Scale::Unknown, Scale::Known)
    }

    /// A decimal number with few places; others are unknown.
    pub fn float(x: f64) -> Scale {
        let under = 10i64.pow(PLACES);
        let scaled = x * under as f64;
        if !scaled.is_finite() || scaled.abs() > 1e15 || scaled.fract().abs() > 1e-6 {
            return Scale::Unknown;
        }
        Monomial::rational(scaled as i64, under).map_or(Scale::Unknown, Scale::Known)
    }

    pub fn of(factor: Factor) -> Scale {
        let powers = SmallVec::from_iter([(factor, 1)]);
        Scale::Known(Monomial { powers, over: 1, under: 1 })
    }

    /// The number of ranks along some axes together.
    pub fn size(axes: &AxisSet) -> Scale {
        axes.iter().fold(Scale::one(), |all, a| all.times(&Scale::of(Factor::Size(a.clone()))))
    }

    #[must_use]
    pub fn times(&self, other: &Scale) -> Scale {
        match (self, other) {
            (Scale::Known(a), Scale::Known(b)) => a.times(b).map_or(Scale::Unknown, Scale::Known),
            _ => Scale::Unknown,
        }
    }

    #[must_use]
    pub fn inverse(&self) -> Scale {
        match self {
            Scale::Known(a) => a.inverse().map_or(Scale::Unknown, Scale::Known),
            Scale::Unknown => Scale::Unknown,
        }
    }

    #[must_use]
    pub fn over(&self, other: &Scale) -> Scale {
        self.times(&other.inverse())
    }

    /// A power with a whole exponent.
    #[must_use]
    pub fn power(&self, n: i32) -> Scale {
        let base = if n < 0 { self.inverse() } else { self.clone() };
        (0..n.unsigned_abs().min(16)).fold(Scale::one(), |all, _| all.times(&base))
    }

    /// What is one of two.
    #[must_use]
    pub fn join(&self, other: &Scale) -> Scale {
        if self == other { self.clone() } else { Scale::Unknown }
    }

    /// Whether everything known of this one holds of the other: the order in which [`Scale::join`] is the least upper bound.
    pub fn leq(&self, other: &Scale) -> bool {
        self == other || *other == Scale::Unknown
    }

    pub fn known(&self) -> Option<&Monomial> {
        match self {
            Scale::Known(m) => Some(m),
            Scale::Unknown => None,
        }
    }

    /// Puts a product in the place of each power of a factor.
    #[must_use]
    pub fn replace(&self, factor: &Factor, by: &Scale) -> Scale {
        let Scale::Known(m) = self else { return Scale::Unknown };
        match m.power(factor) {
            0 => self.clone(),
            n => self.times(&by.over(&Scale::of(factor.clone())).power(i32::from(n))),
        }
    }
}

impl fmt::Display for Factor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Factor::Size(axis) => write!(f, "{axis}"),
            Factor::Count(name) | Factor::Rounds(name) | Factor::Named(name) => write!(f, "{name}"),
        }
    }
}

/// `dp/ep`, `1/(dp*cp)`, `2*tp`.
impl fmt::Display for Monomial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_alone = self.over == 1 && self.under == 1 && matches!(self.powers.as_slice(), [(_, 1)]);
        let side = |sign: i8, number: i64| {
            let mut parts: Vec<String> = if number == 1 { Vec::new() } else { vec![number.to_string()] };
            for (factor, n) in self.powers.iter().filter(|(_, n)| n.signum() == sign) {
                let text = factor.to_string();
                let text = if !is_alone && is_sum(&text) { format!("({text})") } else { text };
                parts.push(match n.unsigned_abs() {
                    1 => text,
                    n => format!("{text}^{n}"),
                });
            }
            parts
        };
        let (over, under) = (side(1, self.over), side(-1, self.under));
        f.write_str(&if over.is_empty() { "1".to_string() } else { over.join("*") })?;
        match under.as_slice() {
            [] => Ok(()),
            [one] => write!(f, "/{one}"),
            many => write!(f, "/({})", many.join("*")),
        }
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scale::Known(m) => write!(f, "{m}"),
            Scale::Unknown => f.write_str("?"),
        }
    }
}

/// Whether an expression is a sum or a difference, as it is written: in a product it needs parentheses.
pub fn is_sum(text: &str) -> bool {
    let (mut depth, mut before) = (0, "");
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            // A sign has no operand before it; that of an exponent stands behind the letter of a number.
            '+' | '-' if depth == 0 && is_operand(before) => return true,
            _ => {}
        }
        before = text[..at + c.len_utf8()].trim_end();
    }
    false
}

/// Whether a text ends in an operand.
fn is_operand(text: &str) -> bool {
    let word = text.rsplit(|c: char| !c.is_alphanumeric() && c != '.' && c != '_').next().unwrap_or(text);
    let is_mantissa = word.starts_with(|c: char| c.is_ascii_digit() || c == '.') && word.ends_with(['e', 'E']);
    !is_mantissa && text.ends_with(|c: char| c.is_alphanumeric() || "_.)]}\"'".contains(c))
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stand_in_parentheses_where_they_are_factors() {
        let named = |text: &str| Scale::of(Factor::Named(Name::from(text)));
        let sum = named("norm+1e-6");
        assert_eq!(sum.to_string(), "norm+1e-6");
        assert_eq!(named("max_norm").over(&sum).to_string(), "max_norm/(norm+1e-6)");
        assert_eq!(named("a - 1").times(&Scale::integer(2)).to_string(), "2*(a - 1)");
        assert_eq!(sum.power(-2).to_string(), "1/(norm+1e-6)^2");
        assert_eq!(named("f(a+b)").over(&named("x[i-1]")).to_string(), "f(a+b)/x[i-1]");
        assert_eq!(named("-a").over(&named("1e-6")).to_string(), "-a/1e-6");
    }
}
