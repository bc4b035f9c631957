//! What each construct of Python becomes, seen through the dump. In: small programs. Out: nothing.

use spmd_check::ir::display::dump;
use spmd_check::ir::{FuncId, LocalKind, Stmt};
use spmd_check::source::{File, Span};
use spmd_check::syntax::parse;

/// Lowers `source` and compares its dump, both without the common indentation of the test.
#[track_caller]
fn lowers(source: &str, expected: &str) {
    let parsed = parse(&dedent(source));
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let (got, expected) = (dump(&parsed.ir), dedent(expected));
    assert!(got == expected, "expected:\n{expected}\ngot:\n{got}");
}

fn dedent(text: &str) -> String {
    let text = text.strip_prefix('\n').unwrap_or(text);
    let lines: Vec<&str> = text.trim_end().lines().collect();
    let indent = |l: &&str| l.len() - l.trim_start().len();
    let common = lines.iter().filter(|l| !l.trim().is_empty()).map(indent).min().unwrap_or(0);
    lines.iter().map(|l| format!("{}\n", l.get(common..).unwrap_or(""))).collect()
}

#[test]
fn values_go_straight_into_their_slot() {
    lowers(
        "x = f(y)\nz = x\nw = x.a.b(1, *z, k=2, **x)[0]",
        "
        x = @f(@y)
        z = x
        %3 = x.a
        %4 = %3.b(1, *z, k=2, **x)
        w = %4[0]
    ",
    );
}

#[test]
fn constants() {
    lowers(
        "a = -1\nb = 'x' \"y\"\nc = 10**20\nd = 99999999999999999999\ne = -0.5\nf = b'x'\ng = f'a' 'b'",
        "
        a = -1
        b = \"xy\"
        c = 10 ** 20
        d = 1e20
        e = -0.5
        f = opaque
        g = \"ab\"
    ",
    );
}

#[test]
fn expressions_branch_only_through_if() {
    lowers(
        "x = a if b else c\ny = a and b.c and f(x) or d\nz = a is None or len(b) > 1\nw = 0 < n <= 5",
        "
        if @b:
            x = @a
        else:
            x = @c
        %5 = @b.c
        %4 = @a and %5
        if %4:
            %4 = @f(x)
        y = %4 or @d
        %6 = @a is None
        %7 = @len(@b)
        %8 = %7 > 1
        z = %6 or %8
        %9 = 0 < @n
        %10 = @n <= 5
        w = %9 and %10
    ",
    );
}

#[test]
fn targets() {
    lowers(
        "a = b = f()\n(c, [d, *e]), s.t, u[0] = a\nc += 1\ns.t -= 1\nu[1] *= 2\nx: int\ny: int = 3\ndel a, u[0]",
        "
        a = @f()
        b = a
        (%7, %8, %9) = a
        (c, %10) = %7
        (d, *e) = %10
        @s.t = %8
        @u[0] = %9
        c = c += 1
        %11 = @s.t
        %12 = %11 -= 1
        @s.t = %12
        %13 = @u[1]
        %14 = %13 *= 2
        @u[1] = %14
        y = 3
        del a
    ",
    );
}

#[test]
fn loops_and_blocks() {
    lowers(
        "
        for i, (a, b) in f():
            continue
        else:
            g()
        while n := f():
            break
        with f() as (x, y), g() as z:
            pass
        try:
            f()
        except E as e:
            raise
        else:
            g()
        finally:
            h()
    ",
        "
        %8 = @f()
        for %9 in %8:
            (i, %10) = %9
            (a, b) = %10
            continue
        else:
            %11 = @g()
        while:
            n = @f()
        holds n:
            break
        %12 = @f()
        with %12 as %13:
            (x, y) = %13
            %14 = @g()
            with %14 as z:
                pass
        try:
            %15 = @f()
        except:
            e = opaque
            raise
        else:
            %16 = @g()
        finally:
            %17 = @h()
    ",
    );
}

#[test]
fn comprehensions_are_loops_with_their_own_variables() {
    lowers(
        "
        def f(x, y):
            x = [x * y for x in x if x for y in x]
            return {k: v for k, v in y}, sum(i for i in x)
    ",
        "
        def f(x, y):
            %2 = list()
            for x'3 in x:
                if x'3:
                    for y'4 in x'3:
                        %5 = x'3 * y'4
                        %2 += %5
            x = %2
            %6 = dict()
            for %9 in y:
                (k, v) = %9
                %6 += k: v
            %10 = list()
            for i in x:
                %10 += i
            %12 = @sum(%10)
            %13 = tuple(%6, %12)
            return %13
    ",
    );
}

#[test]
fn captures_and_globals() {
    lowers(
        "
        def outer(a):
            n = 0
            class K:
                n = 1
                def m(self):
                    return n, n2
            def inner():
                nonlocal n
                global g
                n = g = lambda: a
            return [lambda: i for i in a]
        n2 = 1
    ",
        "
        def outer(a):
            n = 0
            class K():
                n = 1
                def m(self) captures n'2:
                    %2 = tuple(n, @n2)
                    return %2
            def inner() captures n, a:
                n = lambda() captures a:
                    return a
                @g = n
            %4 = list()
            for i in a:
                %6 = lambda() captures i:
                    return i
                %4 += %6
            return %4
        n2 = 1
    ",
    );
    let parsed = parse("def f(a):\n    b = 1\n    return lambda: a\n");
    let kinds: Vec<_> = parsed.ir.funcs[FuncId(1)].locals().iter().map(|l| l.kind).collect();
    assert_eq!(kinds, [LocalKind::Cell, LocalKind::Plain, LocalKind::Temp]);
}

#[test]
fn names_outside_are_read_before_they_are_shadowed() {
    lowers(
        "range = range\nclass A:\n    x = x\n    y = x\n",
        "
        range = @range
        class A():
            x = @x
            y = x
    ",
    );
}

#[test]
fn definitions_and_imports() {
    lowers(
        "
        import a.b, c.d as e
        from ..f import g as h, i
        from j import *
        @dec(1)
        def f(p, /, q: 'Optional[int]' = 1, *r, s: Dict[str, \"T\"] = 2, **t): ...
        class C(B, metaclass=M):
            @staticmethod
            async def m(): await x
    ",
        "
        import a as a loading a.b
        import c.d as e
        from ..f import g as h
        from ..f import i as i
        from j import *
        %6 = @dec(1)
        @%6
        def f(p/, q: Optional[int]=1, *r, *, s: Dict[str,T]=2, **t):
            pass
        class C(@B, metaclass=@M):
            @@staticmethod
            def m() async:
                %0 = await @x
    ",
    );
}

#[test]
fn matching() {
    lowers(
        "
        match f(x):
            case 1: a()
            case [y, *_] if y: b()
            case None: c()
            case z: d()
    ",
        "
        %2 = @f(@x)
        %3 = %2 == 1
        if %3:
            %4 = @a()
        else:
            %5 = opaque
            y = opaque
            %6 = %5 and y
            if %6:
                %7 = @b()
            else:
                %8 = %2 is None
                if %8:
                    %9 = @c()
                else:
                    z = opaque
                    %10 = @d()
    ",
    );
}

#[test]
fn strings_are_evaluated() {
    lowers(
        "s = f'a{x!r:>{w.y}}{z()}' 'b'",
        "
        %1 = @w.y
        %2 = @z()
        s = str(\"a\", @x, %2, \"b\")
    ",
    );
}

#[test]
fn spans_are_those_of_expressions() {
    let text = "x = f(a, k=b.c)\n";
    let parsed = parse(text);
    let module = &parsed.ir.funcs[FuncId(0)];
    let last = module.body().last().expect("two statements");
    assert!(matches!(last.stmt, Stmt::Assign { .. }));
    let spans = module.spans();
    let text_of = |s: &Span| &text[s.start as usize..s.end as usize];
    assert_eq!(text_of(&spans.of(last.id)), "f(a, k=b.c)");
    assert_eq!(spans.parts(last.id).map(|s| text_of(&s)).collect::<Vec<_>>(), ["f", "a", "b.c"]);
    let file = File::new("a.py", "@d\n# c\nasync def f(): 'Doc'\n");
    let module = parse(file.whole()).ir;
    let func = &module.funcs[FuncId(1)];
    assert_eq!((func.span.start, func.documented(&file)), (7, Some("Doc")));
}
