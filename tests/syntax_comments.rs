//! Which statement, parameter or signature a `# spmd:` comment is about, and what is said about those that cannot be
//! read. In: small programs with comments. Out: nothing.

use spmd_check::ir::annotation::SuppressionScope;
use spmd_check::ir::display::dump;
use spmd_check::syntax::{ProblemKind, parse, parse_type_expr};

#[track_caller]
fn shows(source: &str, expected: &[&str]) {
    let parsed = parse(source);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let text = dump(&parsed.ir);
    let found: Vec<&str> = text.lines().map(str::trim).filter(|l| l.starts_with("# ")).collect();
    let found: Vec<&str> = found.iter().map(|l| l.trim_start_matches("# ")).collect();
    assert_eq!(found, expected, "in\n{text}");
}

#[track_caller]
fn complains(source: &str, kind: ProblemKind, under: &str, detail: &str) {
    let parsed = parse(source);
    assert_eq!(parsed.problems.len(), 1, "{:?}", parsed.problems);
    let problem = &parsed.problems[0];
    assert_eq!(problem.kind, kind);
    assert!(problem.detail.contains(detail), "{}", problem.detail);
    assert_eq!(&source[problem.span.start as usize..problem.span.end as usize], under, "{}", problem.detail);
}

#[test]
fn trailing_comments() {
    shows("h = f(x)  # spmd: {tp: P}", &["claim [h] {tp: P}"]);
    shows("h = f(\n    x,\n)  # spmd: {tp: P}", &["claim [h] {tp: P}"]);
    shows("h = f(  # spmd: {tp: P}\n    x,\n)", &["claim [h] {tp: P}"]);
    shows("h = f(\n    # spmd: h: {tp: P}\n    x,\n)", &["claim [h] h: {tp: P}"]);
    shows("a, b = f(x)  # spmd: R, I", &["claim [a, b] R, I"]);
    shows("a, (b, s.c), *d = f(x)  # spmd: b: I", &["claim [a, b, @s.c, ?] b: I"]);
    shows("a = 1; b = 2  # spmd: R, I", &["claim [a, b] R, I"]);
    shows("self.w = f(x)  # spmd: {tp: S(-1)}", &["claim [@self.w] {tp: S(-1)}"]);
    shows("x = f([y for y in z])  # type: ignore  # spmd: R  # noqa", &["claim [x] R"]);
    shows("x = f()  # spmd: R # spmd: x: V", &["claim [x] R", "claim [x] x: V"]);
    shows("if c: y = f()  # spmd: P", &["claim [y] P"]);
    shows("def f():\n    return x  # spmd: -> R", &["claim [] -> R"]);
    shows("class A:\n    w: T  # spmd: R", &["claim [w] R"]);
    shows("for i in x:  # spmd: V\n    pass", &["claim [i] V"]);
    shows("with f() as x:  # spmd: V\n    pass", &["claim [x] V"]);
    shows("s = '# spmd: no'\n# see spmd: no\n# spmd types: prose", &[]);
}

#[test]
fn comments_on_their_own_line() {
    // What the line does not assign holds before it.
    shows("# spmd: h: R, m: V\nh = f()", &["claim above [] m: V", "claim above [h] h: R"]);
    shows("if a:\n    h = f()\n    # spmd: h: R\nelse:\n    g()", &["claim above [] h: R"]);
    shows("if a:\n    h = f()\n# spmd: x: R\nx = 1", &["claim above [x] x: R"]);
    shows("# spmd: param self.w: R, reduce=sum(tp)\nf()", &["claim above [] param self.w: R, reduce=sum(tp)"]);
}

#[test]
fn signatures() {
    shows("# spmd: x: R -> {tp: P}\n@dec\ndef f(x): ...", &["signature x: R -> {tp: P}"]);
    shows("@dec\n# spmd: x: R\ndef f(x): ...", &["signature x: R"]);
    shows("def f(x): ...  # spmd: x: R -> (R, V)", &["signature x: R -> (R, V)"]);
    shows(
        "def f(\n    x: T,  # spmd: R\n    y=g(\n    1),  # spmd: V\n):  # spmd: -> I\n    pass",
        &["signature x: R", "signature y: V", "signature -> I"],
    );
    shows("class A:\n    def f(self, x): ...  # spmd: R", &["signature x: R"]);
    shows("def f(x):\n    # spmd: x: R\n    g(x)", &["claim above [] x: R"]);
}

#[test]
fn types() {
    let shown = |text: &str| shows(&format!("x = 1  # spmd: {text}"), &[&format!("claim [x] {text}")]);
    for text in ["R", "_", "S(-2)", "{dp: V, (cp, tp): S(0)}", "spec(dp, None, (cp, tp))", "[s/cp/tp, b, h] @ {dp: V}"]
    {
        shown(text);
    }
    shown("R if a else I if not b.c else V");
    shows(
        "x = 1  # spmd: {tp: R if a else I, dp: V if b == 'k' else P}",
        &["claim [x] {tp: R, dp: V} if (a and b == \"k\") else {tp: R, dp: P} if a else {tp: I, dp: V} if b == \"k\" \
             else {tp: I, dp: P}"],
    );
    assert_eq!(parse_type_expr("{tp: P} if a else R").map(|t| t.alternatives.len()), Ok(2));
    assert!(parse_type_expr("R R").is_err());
}

#[test]
fn directives() {
    let text = "# spmd: mesh dense = dp, cp over world; alias a = dp * cp\n\
                def f():\n    # spmd: group g(k=1).x = tp\n    pass\n\
                # spmd: extern a.b(x: R) -> R; flag s; assume not s or a.b != 3; mode data-parallel\n";
    let parsed = parse(text);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    assert_eq!(parsed.ir.directives.iter().map(|d| d.clauses.len()).collect::<Vec<_>>(), [2, 1, 4]);
    let unknown = parse("# spmd: mode data-paralel\n");
    assert!(unknown.problems[0].detail.contains("`data-paralel` is not a parallel mode"), "{:?}", unknown.problems);
}

#[test]
fn suppressions() {
    let text = "w = f(\n  y)  # spmd: ignore[a-b, SPMD101] reduced, see #3; really  # noqa\n\
                # spmd: ignore[c] why\n@d\ndef f(): pass\n\
                # spmd: ignore-file[d] generated\n# spmd: skip-file generated\n";
    let parsed = parse(text);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let found = &parsed.ir.suppressions;
    assert_eq!(found[0].reason, "reduced, see #3; really");
    assert_eq!(
        found[0].codes.iter().map(|c| &text[c.1.start as usize..c.1.end as usize]).collect::<Vec<_>>(),
        ["a-b", "SPMD101"]
    );
    let line = |scope| match scope {
        SuppressionScope::Line(span) => &text[span.start as usize..span.end as usize],
        SuppressionScope::File | SuppressionScope::Skip => "",
    };
    assert_eq!(line(found[0].scope), "w = f(\n  y)");
    assert_eq!(line(found[1].scope), "@d\ndef f(): pass");
    assert_eq!((found[2].scope, found[3].scope), (SuppressionScope::File, SuppressionScope::Skip));
}

#[test]
fn complaints() {
    use ProblemKind::{BadAnnotation, BadSuppression};
    complains("def f(x, y): ...  # spmd: R", BadAnnotation, "R", "as in `x: R`");
    complains("def f(\n  x, y,  # spmd: R\n): ...", BadAnnotation, "R", "several parameters");
    complains("def f(\n  x,\n):  # spmd: R\n  pass", BadAnnotation, "R", "no parameter stands on this line");
    complains("# spmd: R\nx = 1", BadAnnotation, "R", "must name what it types");
    complains("x = 1  # spmd: x: R -> R", BadAnnotation, "x: R -> R", "above a `def`");
    complains("x = 1  # spmd: messh a = b", BadAnnotation, "messh", "did you mean `mesh`?");
    complains("x = 1  # spmd: {tp: Replicate}", BadAnnotation, "Replicate", "did you mean `R`?");
    complains("x = 1  # spmd: {tp R}", BadAnnotation, "R", "expected `:`, found `R`");
    complains("x = 1  # spmd: R if a > 1 else I", BadAnnotation, ">", "conditions are names");
    complains("x = 1  # spmd: reduced later", BadAnnotation, "reduced", "neither a type nor a directive");
    complains("x = 1  # spmd: R later", BadAnnotation, "later", "after a type");
    complains("x = 1  # spmd:", BadAnnotation, "", "found the end of the comment");
    complains("x = 1  # spmd: ignore why", BadSuppression, "ignore why", "in brackets");
    complains("x = 1  # spmd: ignore[] why", BadSuppression, "[]", "empty");
    complains("x = 1  # spmd: ignore[a]", BadSuppression, "ignore[a]", "a reason is missing");
}

#[test]
fn comments_without_a_statement() {
    let text = "if a:\n    f()\nelse:  # spmd: x: R\n    g()\n";
    complains(text, ProblemKind::BadAnnotation, "x: R", "belongs to no statement");
    complains("# spmd: x: R\n", ProblemKind::BadAnnotation, "x: R", "belongs to no statement");
}
