//! Blocks are scopes of PTX: their registers and labels are theirs, so that a change of one is a change there.

use ptx_gen::*;

args! {
    /// The arguments of every kernel here.
    pub struct TestArgs {
        /// `[n]`
        x: InOut<u32>,
        /// Elements.
        n: u32,
    }
}

/// A kernel, and where it has an instruction more.
struct Try(for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>, More), More);

type More = Option<&'static str>;

impl KernelDef for Try {
    type Args<S: Side> = TestArgs<S>;
    fn name(&self) -> String {
        "try".into()
    }
    fn block(&self) -> u32 {
        32
    }
    fn grid(&self, _: &TestArgs<Shape>) -> Result<Grid, ShapeError> {
        Ok(Grid::line(1))
    }
    fn program<'k>(&self, k: Builder<'k>, a: TestArgs<Dev<'k>>) {
        (self.0)(k, a, self.1)
    }
    fn reference(&self, _: TestArgs<Cpu<'_>>) {}
}

fn ptx(program: for<'k> fn(Builder<'k>, TestArgs<Dev<'k>>, More), more: More) -> Vec<String> {
    let program = Try(program, more).build().unwrap();
    let text = print(&program, Target::named("sm_75").unwrap()).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Loops and branches within and beside each other, each with a note of its name.
fn nest<'k>(k: Builder<'k>, a: TestArgs<Dev<'k>>, more: More) {
    let note = |name: &'static str| {
        k.note(name);
        if more == Some(name) {
            // More of each: registers of two classes, a branch with its label, and a variable.
            let at = a.x.at(k.tid());
            let mut v = k.var(at.ld());
            k.when(v.get().lt(7), || {
                v += 1;
                at.st(&v);
            });
        }
    };
    let mut sum = k.var(0u32);
    k.for_each(0, a.n, 1, |i| {
        note("first loop");
        let v = a.x.at(i).ld();
        k.when(v.gt(3), || {
            note("inner branch");
            sum += v * 3 + 1;
            a.x.at(i).st(v - 1);
        });
        sum += v;
    });
    k.for_each(0, a.n, 2, |i| {
        note("second loop");
        sum += a.x.at(i).ld();
    });
    let both = k.when(sum.get().lt(9), || {
        note("then");
        a.x.st(sum.get() + 5);
    });
    both.otherwise(|| {
        note("else");
        a.x.st(sum.get() + 6);
    });
    note("end");
    a.x.at(1).st(&sum);
}

/// The lines of the block around the note, its braces included; of the kernel's own block, all after the note.
fn around(lines: &[String], name: &str) -> std::ops::Range<usize> {
    let note = lines
        .iter()
        .position(|line| line.trim() == format!("// {name}"))
        .expect("the note");
    let indent = |line: &String| line.len() - line.trim_start().len();
    let brace =
        |line: &String, mark: &str| line.trim() == mark && indent(line) < indent(&lines[note]);
    let start = (0..note)
        .rev()
        .find(|&n| brace(&lines[n], "{"))
        .expect("a brace");
    let end = (note..lines.len())
        .find(|&n| brace(&lines[n], "}"))
        .expect("a brace");
    start..end + 1
}

#[test]
fn an_instruction_more_changes_only_its_block() {
    let before = ptx(nest, None);
    for name in ["first loop", "inner branch", "second loop", "then", "else"] {
        let after = ptx(nest, Some(name));
        let (old, new) = (around(&before, name), around(&after, name));
        assert!(after.len() > before.len(), "{name}");
        assert_eq!(before[..old.start], after[..new.start], "before {name}");
        assert_eq!(before[old.end..], after[new.end..], "after {name}");
    }
}

#[test]
fn an_instruction_more_in_the_kernels_block_changes_what_follows_it() {
    let (before, after) = (ptx(nest, None), ptx(nest, Some("end")));
    let note = |lines: &[String]| {
        lines
            .iter()
            .position(|line| line.trim() == "// end")
            .expect("the note")
    };
    let declared = |line: &&String| !line.trim().starts_with(".reg");
    let start = |lines: &[String]| -> Vec<String> {
        lines[..note(lines)]
            .iter()
            .filter(declared)
            .cloned()
            .collect()
    };
    assert_eq!(start(&before), start(&after));
}

/// Every name is declared in its block or one around it, below the count declared there.
#[test]
fn every_register_is_declared_around_it() {
    for more in [None, Some("inner branch"), Some("end")] {
        let mut open: Vec<Vec<(String, u32)>> = vec![];
        for line in ptx(nest, more) {
            match line.trim() {
                "{" => open.push(vec![]),
                "}" => drop(open.pop()),
                declaration if declaration.starts_with(".reg") => {
                    let names = declaration
                        .split(';')
                        .filter_map(|d| d.trim().split(' ').nth(2));
                    let block = open.last_mut().expect("an open block");
                    block.extend(names.map(|name| {
                        let (prefix, count) = name
                            .trim_end_matches('>')
                            .split_once('<')
                            .expect("a family");
                        (prefix.to_owned(), count.parse().expect("a count"))
                    }));
                }
                inst => {
                    let names = inst.split([' ', ',', '[', ']', '{', '}', ';', '@', '!', '+']);
                    for name in names.filter(|name| {
                        name.starts_with('%') && name.ends_with(|c: char| c.is_ascii_digit())
                    }) {
                        let digits =
                            name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
                        let (prefix, n) = name.split_at(name.len() - digits);
                        let n: u32 = n.parse().expect("a number");
                        let found = open
                            .iter()
                            .flatten()
                            .any(|(p, count)| p == prefix && n < *count);
                        assert!(found, "{name} in {inst}");
                    }
                }
            }
        }
        assert!(open.is_empty());
    }
}

#[test]
fn blocks_read_like_this() {
    let lines = ptx(
        |k, a, _| {
            k.for_each(0, a.n, 1, |i| {
                let at = a.x.at(i);
                k.when(at.ld().lt(3), || at.st(7))
                    .otherwise(|| _ = at.atom_add(1));
            });
            // The result is nobody's: a guard, and a block for it alone.
            k.when(a.n.eq(0), || _ = a.x.atom_add(1));
        },
        None,
    );
    let body = lines.iter().position(|line| line == "{").expect("the body");
    let wanted = "\
{
    .reg .pred %p<1>; .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd0, [x];
    cvta.to.global.u64 %rd1, %rd0;
    ld.param.u32 %r0, [n];
    mov.u32 %r1, 0;
$loop0:
    {
        .reg .pred %p1_<2>; .reg .b32 %r1_<1>; .reg .b64 %rd1_<1>;
        setp.ge.u32 %p1_0, %r1, %r0;
        @%p1_0 bra $done0;
        mad.wide.u32 %rd1_0, %r1, 4, %rd1;
        ld.global.u32 %r1_0, [%rd1_0];
        setp.lt.u32 %p1_1, %r1_0, 3;
        @!%p1_1 bra $else1_0;
        {
            st.global.u32 [%rd1_0], 7;
        }
        bra $end1_0;
$else1_0:
        {
            .reg .b32 %r2_<1>;
            atom.global.add.u32 %r2_0, [%rd1_0], 1;
        }
$end1_0:
        add.u32 %r1, %r1, 1;
        bra $loop0;
    }
$done0:
    setp.eq.u32 %p0, %r0, 0;
    {
        .reg .b32 %r1_<1>;
        @%p0 atom.global.add.u32 %r1_0, [%rd1], 1;
    }
    ret;
}";
    assert_eq!(lines[body..].join("\n"), wanted);
}
