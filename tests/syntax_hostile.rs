//! Inputs made to break a parser: each gets an answer or a problem, on a stack of 64 MiB. In: generated text. Out:
//! nothing.

use spmd_check::ir::display::dump;
use spmd_check::syntax::{Parsed, ProblemKind, parse, run_on_big_stack};

fn survive(text: &str) -> Parsed {
    run_on_big_stack(|| {
        let parsed = parse(text);
        assert!(!parsed.ir.funcs.is_empty(), "there is always a module body");
        assert!(parsed.problems.iter().all(|p| p.detail != "the parser failed on this file"), "the parser panicked");
        dump(&parsed.ir);
        parsed
    })
}

fn too_deep(parsed: &Parsed) -> bool {
    parsed.problems.iter().any(|p| p.kind == ProblemKind::TooDeep)
}

#[test]
fn long_chains_are_followed() {
    for text in [
        format!("x = {}1", "1+".repeat(100_000)),
        format!("x = a{}", ".b".repeat(100_000)),
        format!("x = f{}", "()".repeat(100_000)),
        format!("x = a{}", "[0]".repeat(100_000)),
        format!("x = {}a", "a and ".repeat(100_000)),
        format!("x = {}a", "a < ".repeat(100_000)),
        format!("x = {}\n", "\"s\" ".repeat(100_000)),
        format!("{}1", "x = ".repeat(100_000)),
        format!("x = [{}]", "1, ".repeat(100_000)),
    ] {
        let parsed = survive(&text);
        assert!(parsed.problems.is_empty(), "{:?} for {}", parsed.problems, &text[..20]);
    }
}

#[test]
fn deep_nesting_is_cut_off() {
    for text in [
        format!("x = {}1{}", "(".repeat(10_000), ")".repeat(10_000)),
        format!("x = {}1{}", "(".repeat(4_000), ")".repeat(4_000)),
        format!("x = {}1{}", "f(".repeat(4_000), ")".repeat(4_000)),
        format!("x = {}1{}", "[".repeat(100_000), "]".repeat(100_000)),
        "[".repeat(100_000),
        "(".repeat(4_900),
        "{".repeat(4_900),
        format!("x = {}1", "-".repeat(100_000)),
        format!("x = {}1", "not ".repeat(100_000)),
        format!("x = {}1", "await ".repeat(100_000)),
        format!("x = {}1", "lambda: ".repeat(100_000)),
        format!("x = {}1", "a ** ".repeat(100_000)),
        format!("x = {}1", "a if b else ".repeat(100_000)),
        format!("x = {}1", "a and f() or ".repeat(100_000)),
        format!("x = {}1", "f() and ".repeat(100_000)),
        format!("x = [a {}]", "for a in a ".repeat(100_000)),
        format!("x = [a for a in a {}]", "if a ".repeat(100_000)),
        format!("{} = 1", "(a, ".repeat(4_000) + &")".repeat(4_000)),
        format!("for {} in x: pass", "[".repeat(3_000) + "a" + &"]".repeat(3_000)),
        format!("if a: pass\n{}", "elif a: pass\n".repeat(50_000)),
        format!("with {}a as b: pass", "a as b, ".repeat(50_000)),
        format!("match x:\n{}", "    case 1: pass\n".repeat(50_000)),
        format!("match x:\n    case {}: pass\n", "[".repeat(4_000) + "a" + &"]".repeat(4_000)),
        format!("{}def f(): pass", "@a\n".repeat(50_000)),
        format!("x = f\"{}\"", "{".repeat(3_000)),
        format!("x: {} = 1", "a[".repeat(4_000) + "b" + &"]".repeat(4_000)),
        format!("# spmd: {}R", "(".repeat(100_000)),
        format!("x = 1  # spmd: R if {}a else R", "not ".repeat(100_000)),
        format!("x = 1  # spmd: {}R", "R if a else ".repeat(100_000)),
    ] {
        survive(&text);
    }
}

#[test]
fn deep_blocks_are_cut_off() {
    for header in ["if a:", "for a in a:", "while a:", "with a:", "def f():", "class A:", "try:"] {
        let mut text = String::new();
        for level in 0..2_500 {
            text.push_str(&" ".repeat(level));
            text.push_str(header);
            text.push('\n');
        }
        text.push_str(&" ".repeat(2_500));
        text.push_str("pass\n");
        assert!(too_deep(&survive(&text)), "{header}");
    }
}

#[test]
fn an_enormous_file_is_refused() {
    assert!(survive(&"x = 1\n".repeat(600_000)).problems.is_empty());
    assert!(too_deep(&survive(&"x = 1\n".repeat(800_000))));
}

#[test]
fn an_enormous_chain_is_refused() {
    assert!(too_deep(&survive(&format!("x = {}1", "1+".repeat(1_000_000)))));
    assert!(too_deep(&survive(&format!("x = a{}", ".b".repeat(1_000_000)))));
    assert!(too_deep(&survive(&format!("x = a{}", "()".repeat(1_000_000)))));
    assert!(too_deep(&survive(&format!("x = {}1", "~".repeat(1_000_000)))));
}

const BROKEN: &[&str] = &[
    "",
    "\n",
    "\r",
    "\r\n\r\n",
    "\x0c",
    "\t",
    "\0",
    "\u{feff}x = 1",
    "x = \u{1f600}",
    "é = 1",
    "x = (",
    "x = 'a",
    "x = '''a",
    "def",
    "def f(",
    "class",
    "class A(",
    "if",
    "if a",
    "for",
    "for x in",
    "with",
    "with a as",
    "try:",
    "match x:",
    "match x:\n case",
    "lambda",
    "x = lambda",
    "@",
    "@a",
    "import",
    "from",
    "from . import",
    "return",
    "*a",
    "x = *",
    "a b c",
    "1 = 2",
    "f() = 3",
    "x +=",
    "x: ",
    "del",
    "global",
    "nonlocal x",
    "async",
    "await",
    "yield",
    "print 'a'",
    "exec 'a' in b",
    "x = [a for",
    "x = {a: b for",
    "f'{",
    "f'{a",
    "f'{a:{",
    "f'{a!'",
    "x = a if b",
    "  x = 1\n y = 2\n",
    "\tx = 1\n        y = 2\n",
    "if a:\nx = 1",
    "def f():\n\treturn\n  x",
    "x = 1 \\",
    "x \\\n",
    "a, *b, *c = d",
    "*a = b",
    "[a, *b] = c",
    "(a := 1) = 2",
    "def f(a, a): pass",
    "def f(*): pass",
    "def f(**a, b): pass",
    "class A:\n    nonlocal x\n",
    "global x\nx = 1\n",
    "def f():\n    nonlocal y\n    y = 1\n",
    "%magic",
    "?x",
    "x = $a",
];

#[test]
fn broken_text_is_lowered_where_it_parses() {
    for text in BROKEN {
        survive(text);
    }
    let parsed = survive("def f(x):\n    return x\n\ndef g(:\n    pass\n\ny = f(1)\n");
    assert!(parsed.problems.iter().any(|p| p.kind == ProblemKind::SyntaxError));
    assert!(dump(&parsed.ir).contains("return x"), "{}", dump(&parsed.ir));
    assert!(parsed.problems.len() <= 5);
}

#[test]
fn lone_carriage_returns_end_lines() {
    let parsed = survive("x = f(y)  # spmd: R\rz = 1\r\nw = 2\r");
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    assert_eq!(parsed.ir.funcs.iter().map(|f| f.claims.len()).sum::<usize>(), 1);
}
