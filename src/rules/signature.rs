//! Signatures of external functions, `(input, other, *, alpha=1)`, and binding of call arguments to them.
//!
//! In: the notation, then arguments of a call. Out: which argument is which parameter. Never: evaluation of defaults.
//! Errors: a notation that does not parse; a call that does not fit binds what it can. Next: `book.rs`.

use crate::source::Name;

/// A parameter of an external function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub name: Name,
    pub keyword_only: bool,
    /// `*args`: takes all further positional arguments.
    pub variadic: bool,
    /// The default as written.
    pub default: Option<Name>,
}

/// The parameters of an external function, in order.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Signature {
    pub params: Vec<Parameter>,
}

/// For each parameter the indices of the arguments bound to it (several for `*args`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bound {
    slots: Vec<Vec<usize>>,
}

impl Signature {
    /// Parses `(a, b=1, *rest, *, c, **kwargs)`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Signature, String> {
        let inner = text
            .trim()
            .strip_prefix('(')
            .and_then(|t| t.strip_suffix(')'))
            .ok_or_else(|| format!("a signature is written `(a, b=1)`, not `{text}`"))?;
        let mut params = Vec::new();
        let mut keyword_only = false;
        for part in split_top_level(inner) {
            let part = part.trim();
            match part {
                "" | "/" => continue,
                "*" => {
                    keyword_only = true;
                    continue;
                }
                _ if part.starts_with("**") => continue,
                _ => {}
            }
            let (name, default) = match part.split_once('=') {
                Some((name, default)) => (name.trim(), Some(Name::from(default.trim()))),
                None => (part, None),
            };
            let variadic = name.starts_with('*');
            let name = name.trim_start_matches('*');
            if name.is_empty() || !name.chars().all(|c| c.is_alphanumeric() || c == '_') {
                return Err(format!("`{part}` is not a parameter"));
            }
            params.push(Parameter { name: Name::from(name), keyword_only, variadic, default });
            keyword_only |= variadic;
        }
        Ok(Signature { params })
    }

    pub fn index(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| p.name == name)
    }

    /// Binds arguments, given as their keywords (`None`: positional), in call order. What does not fit is left out.
    pub fn bind(&self, keywords: &[Option<&Name>]) -> Bound {
        let mut slots: Vec<Vec<usize>> = vec![Vec::new(); self.params.len()];
        let mut next = 0;
        for (i, keyword) in keywords.iter().enumerate() {
            match keyword {
                None => {
                    let Some(param) = self.params.get(next) else { continue };
                    if param.keyword_only {
                        continue;
                    }
                    slots[next].push(i);
                    if !param.variadic {
                        next += 1;
                    }
                }
                Some(name) => {
                    if let Some(at) = self.index(name) {
                        slots[at].push(i);
                    }
                }
            }
        }
        Bound { slots }
    }
}

impl Bound {
    /// The argument of a parameter, if one was given.
    pub fn first(&self, param: usize) -> Option<usize> {
        self.slots.get(param).and_then(|s| s.first()).copied()
    }
    pub fn all(&self, param: usize) -> &[usize] {
        self.slots.get(param).map_or(&[], Vec::as_slice)
    }
}

/// Splits at commas that are not inside brackets or quotes.
fn split_top_level(text: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start, mut quote) = (Vec::new(), 0i32, 0, None);
    for (i, c) in text.char_indices() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => {
                parts.push(&text[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binds_positional_keyword_and_variadic() {
        let s = Signature::parse("(input, *sizes, dtype=None)").expect("parses");
        assert!(s.params[1].variadic && s.params[2].keyword_only);
        let dtype = Name::from("dtype");
        let b = s.bind(&[None, None, None, Some(&dtype)]);
        assert_eq!((b.first(0), b.all(1), b.first(2)), (Some(0), &[1usize, 2][..], Some(3)));
        assert!(Signature::parse("input").is_err());
    }
}
