//! Clauses of an annotation comment: signatures, named and bare types, directives.
//!
//! In: the text of one `# spmd:` part. Out: [`Clause`]s, suppressions and complaints. Never: deciding where a clause
//! may stand, which is `attach.rs`'s. Next: `comments.rs`.

use super::annotation_lexer::Tok;
use super::annotation_parser::{Bad, Parse, Parser};
use super::suggest::closest;
use crate::ir::annotation::{Clause, ClauseKind, Reduce, ReduceKind, Result_, TypedTarget};
use crate::source::{Name, Span};
use crate::types::mode::{MODES, mode};

/// Words that open a clause of their own.
const DIRECTIVES: [&str; 12] = [
    "mesh",
    "alias",
    "group",
    "flag",
    "assume",
    "mode",
    "extern",
    "param",
    "trust",
    "ignore",
    "ignore-file",
    "skip-file",
];

/// What one part of a comment says.
#[derive(Default)]
pub(super) struct Part {
    pub clauses: Vec<Clause>,
    pub problems: Vec<Bad>,
    /// Offset of an `ignore`, `ignore-file` or `skip-file`, which takes the rest of the comment.
    pub suppression: Option<u32>,
}

pub(super) fn parse_part(text: &str, base: u32) -> Part {
    let mut part = Part::default();
    let mut parser = Parser::new(text, base);
    loop {
        if is_suppression(&parser) {
            part.suppression = Some(parser.span().start);
            return part;
        }
        let start = parser.span();
        match parse_clause(&mut parser) {
            Ok(kind) => part.clauses.push(Clause { span: parser.span_from(start), kind }),
            Err(bad) => {
                part.problems.push(bad);
                // The other clauses may still make sense.
                while !parser.is(";") && parser.peek() != Tok::End {
                    parser.bump();
                }
            }
        }
        if !parser.eat(";") || parser.peek() == Tok::End {
            return part;
        }
    }
}

fn is_suppression(parser: &Parser) -> bool {
    match (parser.peek(), parser.peek_at(1)) {
        (Tok::Name("ignore"), Tok::Punct(":" | "." | ",")) => false,
        (Tok::Name("ignore"), _) => true,
        (Tok::Name("skip"), Tok::Punct("-")) => parser.peek_at(2) == Tok::Name("file"),
        _ => false,
    }
}

fn parse_clause(parser: &mut Parser) -> Parse<ClauseKind> {
    let kind = match (parser.peek(), parser.peek_at(1)) {
        (Tok::End | Tok::Punct(";"), _) => return Err(parser.expected("a type, `name: type`, or a directive")),
        (Tok::Name(word), Tok::Name(_)) => match directive(parser, word)? {
            Some(kind) => kind,
            None => return Err(unknown_directive(parser, word)),
        },
        (Tok::Name("trust"), Tok::Punct("*")) | (Tok::Name("group"), Tok::Punct("(")) => {
            let Tok::Name(word) = parser.peek() else { return Err(parser.expected("a directive")) };
            directive(parser, word)?.expect("both words are directives")
        }
        _ => typed_or_bare(parser)?,
    };
    match parser.peek() {
        Tok::End | Tok::Punct(";") => Ok(kind),
        Tok::Name(_) | Tok::Int(_) | Tok::Str(_) | Tok::Punct(_) => Err(after_clause(parser, &kind)),
    }
}

fn after_clause(parser: &Parser, kind: &ClauseKind) -> Bad {
    match kind {
        ClauseKind::Bare(_) => parser.expected("`,`, `;` or the end of the comment after a type"),
        ClauseKind::Named(_) => parser.expected("`,`, `->`, `;` or the end of the comment after a type"),
        _ => parser.expected("`;` or the end of the comment"),
    }
}

fn unknown_directive(parser: &Parser, word: &str) -> Bad {
    // A type that is followed by a word: the mistake is the word.
    if matches!(word, "R" | "I" | "V" | "P" | "_") {
        let mut probe = Parser::new(parser.rest().0, parser.rest().1);
        probe.bump();
        return probe.expected("`if`, `,`, `;` or the end of the comment after a type");
    }
    let detail = match closest(word, &DIRECTIVES) {
        Some(meant) => format!("unknown directive `{word}`, did you mean `{meant}`?"),
        None => format!("`{word}` is neither a type nor a directive (`mesh`, `alias`, `group`, `flag`, `assume`, ...)"),
    };
    (parser.span(), detail)
}

fn typed_or_bare(parser: &mut Parser) -> Parse<ClauseKind> {
    if parser.eat("->") {
        return Ok(ClauseKind::Signature { params: Vec::new(), result: result(parser)? });
    }
    if let Some(first) = parser.target_with_colon() {
        let params = parser.typed_list(first)?;
        return Ok(match parser.eat("->") {
            true => ClauseKind::Signature { params, result: result(parser)? },
            false => ClauseKind::Named(params),
        });
    }
    let mut types = vec![parser.type_expr()?];
    while parser.eat(",") {
        types.push(parser.type_expr()?);
    }
    Ok(ClauseKind::Bare(types))
}

/// A type, `(T, U)`, or `T, U`.
fn result(parser: &mut Parser) -> Parse<Result_> {
    let position = parser.position();
    if parser.eat("(") {
        let first = parser.type_expr();
        if first.is_ok() && parser.is(",") {
            let mut types = vec![first?];
            while parser.eat(",") && !parser.is(")") {
                types.push(parser.type_expr()?);
            }
            parser.expect(")")?;
            return Ok(Result_::Tuple(types));
        }
        parser.rewind(position);
    }
    let mut types = vec![parser.type_expr()?];
    while parser.eat(",") {
        types.push(parser.type_expr()?);
    }
    Ok(if types.len() == 1 { Result_::One(types.swap_remove(0)) } else { Result_::Tuple(types) })
}

fn directive(parser: &mut Parser, word: &str) -> Parse<Option<ClauseKind>> {
    if !DIRECTIVES.contains(&word) {
        // `R if x else I` and other types start with a word, too.
        let is_type = matches!(word, "R" | "I" | "V" | "P" | "_") && parser.peek_at(1) == Tok::Name("if");
        return if is_type { typed_or_bare(parser).map(Some) } else { Ok(None) };
    }
    parser.bump();
    Ok(Some(match word {
        "mesh" => mesh(parser)?,
        "alias" => {
            let name = Name::from(parser.name("the name of the alias")?);
            parser.expect("=")?;
            let mut parts = vec![parser.dotted("the name of an axis")?];
            while parser.eat("*") || parser.eat(",") {
                parts.push(parser.dotted("the name of an axis")?);
            }
            ClauseKind::Alias { name, parts }
        }
        "group" => group(parser)?,
        "flag" => ClauseKind::Flag(parser.dotted("the name of a flag")?),
        "assume" => ClauseKind::Assume(parser.cond()?),
        "mode" => ClauseKind::Mode(mode_name(parser)?),
        "extern" => external(parser)?,
        "param" => param(parser)?,
        "trust" => ClauseKind::Trust(typed(parser)?),
        _ => return Ok(None),
    }))
}

fn mesh(parser: &mut Parser) -> Parse<ClauseKind> {
    let name = Name::from(parser.name("the name of the mesh")?);
    parser.expect("=")?;
    let axes = axis_list(parser)?;
    let over = match parser.eat_name("over") {
        true => Some(parser.dotted("the mesh that it is laid over")?),
        false => None,
    };
    Ok(ClauseKind::Mesh { name, axes, over })
}

fn axis_list(parser: &mut Parser) -> Parse<Vec<Name>> {
    let mut axes = parser.axes()?;
    while parser.eat(",") || parser.eat("*") {
        axes.extend(parser.axes()?);
    }
    Ok(axes)
}

fn group(parser: &mut Parser) -> Parse<ClauseKind> {
    let start = parser.span();
    // An `=` in brackets belongs to the expression: `get_group(with_cp=True)`.
    let mut depth = 0u32;
    while (depth > 0 || !parser.is("=")) && !parser.is(";") && parser.peek() != Tok::End {
        match parser.bump().tok {
            Tok::Punct("(" | "[" | "{") => depth += 1,
            Tok::Punct(")" | "]" | "}") => depth = depth.saturating_sub(1),
            Tok::Punct(_) | Tok::Name(_) | Tok::Int(_) | Tok::Str(_) | Tok::End => {}
        }
    }
    if !parser.is("=") {
        return Err(parser.expected("`=` and the axes of the group"));
    }
    let expr = parser.text_between(start.start, parser.span_from(start).end);
    parser.expect("=")?;
    Ok(ClauseKind::Group { expr, axes: axis_list(parser)? })
}

/// Modes may have dashes: `global-spmd`.
fn mode_name(parser: &mut Parser) -> Parse<Name> {
    let start = parser.span();
    parser.name("the name of a mode")?;
    while parser.eat("-") {
        parser.name("the rest of the name of a mode")?;
    }
    let span = parser.span_from(start);
    let name = parser.text_between(start.start, span.end);
    if mode(&name).is_none() {
        let known: Vec<&str> = MODES.iter().map(|m| m.name()).collect();
        return Err((span, format!("`{name}` is not a parallel mode: the modes are {}", known.join(", "))));
    }
    Ok(name)
}

fn external(parser: &mut Parser) -> Parse<ClauseKind> {
    let path = parser.dotted("the dotted name of a function")?;
    parser.expect("(")?;
    let params = if parser.is(")") { Vec::new() } else { typed(parser)? };
    parser.expect(")")?;
    parser.expect("->")?;
    Ok(ClauseKind::Extern { path, params, result: result(parser)? })
}

fn typed(parser: &mut Parser) -> Parse<Vec<TypedTarget>> {
    match parser.target_with_colon() {
        Some(first) => parser.typed_list(first),
        None => Err(parser.expected("`name: type`")),
    }
}

fn param(parser: &mut Parser) -> Parse<ClauseKind> {
    let Some((target, _)) = parser.target_with_colon() else { return Err(parser.expected("`name: type`")) };
    let ty = parser.type_expr()?;
    let mut reduce = None;
    if parser.eat(",") {
        if !parser.eat_name("reduce") {
            return Err(parser.expected("`reduce=sum(axis)`"));
        }
        parser.expect("=")?;
        let at: Span = parser.span();
        let word = parser.name("`sum`, `mean` or `none`")?;
        let kind = match word {
            "sum" => ReduceKind::Sum,
            "mean" => ReduceKind::Mean,
            "none" => ReduceKind::None,
            other => return Err((at, format!("expected `sum`, `mean` or `none`, found `{other}`"))),
        };
        let axes = if parser.is("(") { parser.axes()? } else { Vec::new() };
        reduce = Some(Reduce { kind, axes });
    }
    Ok(ClauseKind::Param { target, ty, reduce })
}
