//! Conditions (`a.b and not c == 1`) and targets (`self.x`, `x[0]`) of the annotation grammar.
//!
//! In: tokens. Out: [`Cond`]s and [`Target`]s. Never: knowing which flags or variables exist. Next: `clauses.rs`.

use super::annotation_lexer::Tok;
use super::annotation_parser::{Parse, Parser};
use crate::ir::Const;
use crate::ir::annotation::{Cond, Target, TypedTarget};
use crate::source::{Name, Span};

impl Parser<'_> {
    pub fn cond(&mut self) -> Parse<Cond> {
        self.nested(|this| {
            let mut terms = vec![this.conjunction()?];
            while this.eat_name("or") {
                terms.push(this.conjunction()?);
            }
            Ok(if terms.len() == 1 { terms.swap_remove(0) } else { Cond::Or(terms) })
        })
    }

    fn conjunction(&mut self) -> Parse<Cond> {
        let mut terms = vec![self.negation()?];
        while self.eat_name("and") {
            terms.push(self.negation()?);
        }
        Ok(if terms.len() == 1 { terms.swap_remove(0) } else { Cond::And(terms) })
    }

    fn negation(&mut self) -> Parse<Cond> {
        if self.eat_name("not") {
            return self.nested(|this| Ok(Cond::Not(Box::new(this.negation()?))));
        }
        if self.eat("(") {
            let cond = self.cond()?;
            self.expect(")")?;
            return Ok(cond);
        }
        if self.eat_name("True") {
            return Ok(Cond::Const(true));
        }
        if self.eat_name("False") {
            return Ok(Cond::Const(false));
        }
        let name = self.dotted("a flag, an attribute or a parameter")?;
        if self.eat("==") {
            return Ok(Cond::Equals(name, self.literal()?));
        }
        if self.eat("!=") {
            return Ok(Cond::Not(Box::new(Cond::Equals(name, self.literal()?))));
        }
        if self.eat_name("is") {
            let negated = self.eat_name("not");
            let equals = Cond::Equals(name, self.literal()?);
            return Ok(if negated { Cond::Not(Box::new(equals)) } else { equals });
        }
        match self.peek() {
            Tok::Punct("<" | ">" | "+" | "-" | "*" | "/" | "%" | "(" | "[" | "=") | Tok::Name("in") => Err((
                self.span(),
                format!("conditions are names, `==`, `!=`, `not`, `and`, `or`; found {}", self.found()),
            )),
            Tok::Name(_) | Tok::Int(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => Ok(Cond::Flag(name)),
        }
    }

    fn literal(&mut self) -> Parse<Const> {
        let negative = self.eat("-");
        let value = match self.peek() {
            Tok::Int(value) => Const::Int(if negative { -value } else { value }),
            Tok::Str(text) if !negative => Const::Str(Name::from(text)),
            Tok::Name("None") if !negative => Const::None,
            Tok::Name("True") if !negative => Const::Bool(true),
            Tok::Name("False") if !negative => Const::Bool(false),
            Tok::Str(_) | Tok::Name(_) | Tok::Punct(_) | Tok::End => {
                return Err(self.expected("a literal (a number, a string, `True`, `False` or `None`)"));
            }
        };
        self.bump();
        Ok(value)
    }

    /// `x`, `self.x`, `x[0]`, `x["k"]`, `return`, if a `:` follows; otherwise nothing is taken.
    pub fn target_with_colon(&mut self) -> Option<(Target, Span)> {
        let (position, start) = (self.position(), self.span());
        let target = self.target();
        let span = self.span_from(start);
        if let Some(target) = target
            && self.eat(":")
        {
            return Some((target, span));
        }
        self.rewind(position);
        None
    }

    fn target(&mut self) -> Option<Target> {
        // `*args` and `**kwargs` are known by their names.
        while self.eat("*") {}
        let name = Name::from(self.name("").ok()?);
        if name == "return" {
            return Some(Target::Return);
        }
        if self.eat("[") {
            let target = match self.peek() {
                Tok::Int(index) => Target::Index(name, index),
                Tok::Str(key) => Target::Key(name, Name::from(key)),
                Tok::Punct("-") => match self.peek_at(1) {
                    Tok::Int(index) => {
                        self.bump();
                        Target::Index(name, -index)
                    }
                    Tok::Name(_) | Tok::Str(_) | Tok::Punct(_) | Tok::End => return None,
                },
                Tok::Name(_) | Tok::Punct(_) | Tok::End => return None,
            };
            self.bump();
            return self.eat("]").then_some(target);
        }
        let mut path = Vec::new();
        while self.eat(".") {
            path.push(Name::from(self.name("").ok()?));
        }
        Some(if path.is_empty() { Target::Name(name) } else { Target::Attr(name, path) })
    }

    /// `target: type, ...` after the first `target:`.
    pub fn typed_list(&mut self, first: (Target, Span)) -> Parse<Vec<TypedTarget>> {
        let mut typed = Vec::new();
        let mut next = first;
        loop {
            let (target, at) = next;
            let ty = self.type_expr()?;
            typed.push(TypedTarget { target, span: self.span_from(at), ty });
            if !self.eat(",") {
                return Ok(typed);
            }
            let Some(found) = self.target_with_colon() else { return Err(self.expected("`name: type`")) };
            next = found;
        }
    }
}
