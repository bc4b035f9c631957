//! Types of the annotation grammar (DESIGN.md section 3).
//!
//! In: tokens. Out: [`TypeExpr`]s. Never: knowing which axes exist. Next: `conditions.rs`, `clauses.rs`.

use super::annotation_lexer::{Tok, Token, lex};
use super::suggest::closest;
use crate::ir::annotation::{Alt, Atom, AxisAtom, Cond, Dim, TypeExpr};
use crate::source::{Name, Span};
use ecow::eco_format;

/// What was wrong and where.
pub(super) type Bad = (Span, String);
pub(super) type Parse<T> = Result<T, Bad>;

/// Conditions within the entries of one map multiply out; beyond this many alternatives something is wrong.
const MAX_ALTERNATIVES: usize = 64;
/// Nesting of parentheses in a type or condition.
const MAX_NESTING: u32 = 50;

type Alternatives<T> = Vec<(Option<Cond>, T)>;

pub(super) fn parse_type_expr(text: &str) -> Result<TypeExpr, String> {
    let mut parser = Parser::new(text, 0);
    let whole = |parser: &mut Parser| {
        let ty = parser.type_expr()?;
        parser.expect_end()?;
        Ok(ty)
    };
    whole(&mut parser).map_err(|(_, detail): Bad| detail)
}

pub(super) fn parse_cond(text: &str) -> Result<Cond, String> {
    let mut parser = Parser::new(text, 0);
    let whole = |parser: &mut Parser| {
        let cond = parser.cond()?;
        parser.expect_end()?;
        Ok(cond)
    };
    whole(&mut parser).map_err(|(_, detail): Bad| detail)
}

pub(super) struct Parser<'a> {
    text: &'a str,
    base: u32,
    tokens: Vec<Token<'a>>,
    at: usize,
    nesting: u32,
}

impl<'a> Parser<'a> {
    pub fn new(text: &'a str, base: u32) -> Self {
        Parser { text, base, tokens: lex(text, base), at: 0, nesting: 0 }
    }

    pub fn peek(&self) -> Tok<'a> {
        self.peek_at(0)
    }

    pub fn peek_at(&self, ahead: usize) -> Tok<'a> {
        self.tokens.get(self.at + ahead).map_or(Tok::End, |t| t.tok)
    }

    /// Span of the next token.
    pub fn span(&self) -> Span {
        self.tokens[self.at.min(self.tokens.len() - 1)].span
    }

    /// From `start` to the end of the last token taken.
    pub fn span_from(&self, start: Span) -> Span {
        match self.at.checked_sub(1).and_then(|at| self.tokens.get(at)) {
            Some(last) if last.span.end >= start.start => Span::new(start.start, last.span.end),
            _ => start,
        }
    }

    pub fn bump(&mut self) -> Token<'a> {
        let token = self.tokens[self.at.min(self.tokens.len() - 1)];
        if token.tok != Tok::End {
            self.at += 1;
        }
        token
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn rewind(&mut self, position: usize) {
        self.at = position;
    }

    /// The text from the next token on, and where it starts in the file.
    pub fn rest(&self) -> (&'a str, u32) {
        let start = self.span().start;
        (&self.text[(start - self.base) as usize..], start)
    }

    /// The text between two file offsets, without whitespace.
    pub fn text_between(&self, start: u32, end: u32) -> Name {
        let text = &self.text[(start - self.base) as usize..(end.max(start) - self.base) as usize];
        text.chars().filter(|c| !c.is_whitespace()).collect()
    }

    pub fn is(&self, punct: &str) -> bool {
        self.peek() == Tok::Punct(punct)
    }

    pub fn is_name(&self, name: &str) -> bool {
        self.peek() == Tok::Name(name)
    }

    pub fn eat(&mut self, punct: &str) -> bool {
        let found = self.is(punct);
        if found {
            self.bump();
        }
        found
    }

    pub fn eat_name(&mut self, name: &str) -> bool {
        let found = self.is_name(name);
        if found {
            self.bump();
        }
        found
    }

    pub fn expect(&mut self, punct: &str) -> Parse<()> {
        if self.eat(punct) { Ok(()) } else { Err(self.expected(&format!("`{punct}`"))) }
    }

    pub fn expect_end(&mut self) -> Parse<()> {
        if self.peek() == Tok::End { Ok(()) } else { Err(self.expected("the end of the type")) }
    }

    pub fn name(&mut self, what: &str) -> Parse<&'a str> {
        match self.peek() {
            Tok::Name(name) => {
                self.bump();
                Ok(name)
            }
            Tok::Int(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => Err(self.expected(what)),
        }
    }

    pub fn dotted(&mut self, what: &str) -> Parse<Name> {
        let mut name = Name::from(self.name(what)?);
        while self.is(".") && matches!(self.peek_at(1), Tok::Name(_)) {
            self.bump();
            name = eco_format!("{name}.{}", self.name(what)?);
        }
        Ok(name)
    }

    pub fn expected(&self, what: &str) -> Bad {
        (self.span(), format!("expected {what}, found {}", self.found()))
    }

    pub fn found(&self) -> String {
        match self.peek() {
            Tok::Name(text) | Tok::Punct(text) => format!("`{text}`"),
            Tok::Int(value) => format!("`{value}`"),
            Tok::Str(text) => format!("the string `{text}`"),
            Tok::End => "the end of the comment".to_string(),
        }
    }

    pub fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.nesting >= MAX_NESTING {
            return Err((self.span(), format!("nested more than {MAX_NESTING} deep")));
        }
        self.nesting += 1;
        let value = f(self);
        self.nesting -= 1;
        value
    }

    pub fn type_expr(&mut self) -> Parse<TypeExpr> {
        let start = self.span();
        let alternatives = self.conditional(Self::alt)?;
        Ok(TypeExpr { span: self.span_from(start), alternatives })
    }

    /// `item [if cond else conditional]`, parentheses allowed; the alternatives multiply out to a list.
    fn conditional<T: Clone>(&mut self, item: fn(&mut Self) -> Parse<Alternatives<T>>) -> Parse<Alternatives<T>> {
        self.nested(|this| {
            let mut alternatives = if this.eat("(") {
                let inner = this.conditional(item)?;
                this.expect(")")?;
                inner
            } else {
                item(this)?
            };
            if !this.eat_name("if") {
                return Ok(alternatives);
            }
            let cond = this.cond()?;
            if !this.eat_name("else") {
                return Err(this.expected("`else` and the type that holds otherwise"));
            }
            for (inner, _) in &mut alternatives {
                *inner = Some(and(Some(&cond), inner.as_ref()).unwrap_or(Cond::Const(true)));
            }
            alternatives.extend(this.conditional(item)?);
            if alternatives.len() > MAX_ALTERNATIVES {
                return Err((this.span(), format!("a type has more than {MAX_ALTERNATIVES} alternatives")));
            }
            Ok(alternatives)
        })
    }

    fn alt(&mut self) -> Parse<Alternatives<Alt>> {
        let one = |alt| vec![(None, alt)];
        match self.peek() {
            Tok::Name("_") => {
                self.bump();
                Ok(one(Alt::Unknown))
            }
            Tok::Name("spec") => {
                self.bump();
                Ok(one(Alt::Spec(self.spec()?)))
            }
            Tok::Punct("{") => Ok(self.map()?.into_iter().map(|(cond, map)| (cond, Alt::Map(map))).collect()),
            Tok::Punct("[") => self.dims(),
            Tok::Name(_) | Tok::Int(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => match self.atom()? {
                Some(atom) => Ok(one(Alt::Atom(atom))),
                None => Err(self.bad_type()),
            },
        }
    }

    fn atom(&mut self) -> Parse<Option<Atom>> {
        let atom = match self.peek() {
            Tok::Name("R") => Atom::Replicate,
            Tok::Name("I") => Atom::Invariant,
            Tok::Name("V") => Atom::Varying,
            Tok::Name("P") => Atom::Partial,
            Tok::Name("S") => {
                self.bump();
                self.expect("(")?;
                let negative = self.eat("-");
                let Tok::Int(dim) = self.peek() else { return Err(self.expected("a tensor dimension, as in `S(0)`")) };
                let Ok(dim) = i32::try_from(if negative { -dim } else { dim }) else {
                    return Err(self.expected("a small dimension"));
                };
                self.bump();
                self.expect(")")?;
                return Ok(Some(Atom::Shard(dim)));
            }
            Tok::Name(_) | Tok::Int(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => return Ok(None),
        };
        self.bump();
        Ok(Some(atom))
    }

    fn bad_type(&self) -> Bad {
        let (span, detail) =
            self.expected("a type (`R`, `I`, `V`, `P`, `S(i)`, `{axis: ...}`, `spec(...)`, `[...]` or `_`)");
        let Tok::Name(word) = self.peek() else { return (span, detail) };
        let meant = match word {
            "Replicate" | "replicate" | "Replicated" | "r" => Some("R"),
            "Invariant" | "invariant" | "i" => Some("I"),
            "Varying" | "varying" | "v" => Some("V"),
            "Partial" | "partial" | "p" => Some("P"),
            "Shard" | "shard" | "s" => Some("S"),
            "PartitionSpec" | "Spec" => Some("spec"),
            other => closest(other, &["spec", "ignore"]),
        };
        match meant {
            Some(meant) => (span, format!("`{word}` is not a type, did you mean `{meant}`?")),
            None => (span, detail),
        }
    }

    /// `{axis: atom, ...}`
    fn map(&mut self) -> Parse<Alternatives<Vec<AxisAtom>>> {
        self.expect("{")?;
        let mut maps: Alternatives<Vec<AxisAtom>> = vec![(None, Vec::new())];
        while !self.is("}") {
            let start = self.span();
            let axes = self.map_axes()?;
            self.expect(":")?;
            let entry = self.conditional(Self::map_atom)?;
            let span = self.span_from(start);
            if maps.len() * entry.len() > MAX_ALTERNATIVES {
                return Err((span, format!("a type has more than {MAX_ALTERNATIVES} alternatives")));
            }
            let mut product = Vec::with_capacity(maps.len() * entry.len());
            for (cond, map) in &maps {
                for (inner, atom) in &entry {
                    let mut map = map.clone();
                    // An axis that is not mentioned is unknown.
                    if let Some(atom) = atom {
                        map.push(AxisAtom { axes: axes.clone(), atom: *atom, span });
                    }
                    product.push((and(cond.as_ref(), inner.as_ref()), map));
                }
            }
            maps = product;
            if !self.eat(",") {
                break;
            }
        }
        if self.eat("}") { Ok(maps) } else { Err(self.expected("`,` or `}`")) }
    }

    fn map_atom(&mut self) -> Parse<Alternatives<Option<Atom>>> {
        if self.eat_name("_") {
            return Ok(vec![(None, None)]);
        }
        match self.atom()? {
            Some(atom) => Ok(vec![(None, Some(atom))]),
            None => {
                let (span, detail) = self.bad_type();
                let in_map = self.expected("`R`, `I`, `V`, `P`, `S(i)` or `_`").1;
                Err((span, if detail.starts_with("expected") { in_map } else { detail }))
            }
        }
    }

    fn map_axes(&mut self) -> Parse<Vec<Name>> {
        if let Tok::Str(text) = self.peek() {
            self.bump();
            return Ok(vec![Name::from(text)]);
        }
        self.axes()
    }

    /// An axis or a parenthesized tuple of axes.
    pub fn axes(&mut self) -> Parse<Vec<Name>> {
        if !self.eat("(") {
            return Ok(vec![self.dotted("the name of an axis")?]);
        }
        let mut axes = vec![self.dotted("the name of an axis")?];
        while self.eat(",") && !self.is(")") {
            axes.push(self.dotted("the name of an axis")?);
        }
        self.expect(")")?;
        Ok(axes)
    }

    /// `(dp, None, (cp, tp))` after `spec`
    fn spec(&mut self) -> Parse<Vec<Vec<Name>>> {
        self.expect("(")?;
        let mut dims = Vec::new();
        while !self.is(")") {
            if self.eat_name("None") {
                dims.push(Vec::new());
            } else {
                dims.push(self.axes()?);
            }
            if !self.eat(",") {
                break;
            }
        }
        if self.eat(")") { Ok(dims) } else { Err(self.expected("`,` or `)`")) }
    }

    /// `[s/tp, b, h] @ {dp: V}`
    fn dims(&mut self) -> Parse<Alternatives<Alt>> {
        self.expect("[")?;
        let mut dims = Vec::new();
        while !self.is("]") {
            dims.push(self.dim()?);
            if !self.eat(",") {
                break;
            }
        }
        if !self.eat("]") {
            return Err(self.expected("`,`, `/` or `]`"));
        }
        if !self.eat("@") {
            return Ok(vec![(None, Alt::Dims { dims, map: Vec::new() })]);
        }
        let maps = self.map()?;
        Ok(maps.into_iter().map(|(cond, map)| (cond, Alt::Dims { dims: dims.clone(), map })).collect())
    }

    fn dim(&mut self) -> Parse<Dim> {
        let start = self.span();
        loop {
            match self.peek() {
                Tok::Name(_) | Tok::Int(_) => self.bump(),
                Tok::Str(_) | Tok::Punct(_) | Tok::End => {
                    return Err(self.expected("the name of a tensor dimension, as in `[s/tp, b, h]`"));
                }
            };
            if !self.eat("*") {
                break;
            }
        }
        let end = self.span_from(start).end;
        let name = self.text_between(start.start, end);
        let mut over = Vec::new();
        while self.eat("/") {
            over.extend(self.axes()?);
        }
        Ok(Dim { name, over })
    }
}

/// The conjunction of two optional conditions.
fn and(left: Option<&Cond>, right: Option<&Cond>) -> Option<Cond> {
    match (left, right) {
        (None, None) => None,
        (Some(cond), None) | (None, Some(cond)) => Some(cond.clone()),
        (Some(left), Some(right)) => Some(Cond::And(vec![left.clone(), right.clone()])),
    }
}
