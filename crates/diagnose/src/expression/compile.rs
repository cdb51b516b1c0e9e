//! Compiles an expression over figures: `p99 > 3 * normal.p99 && errors > 0`.
//!
//! The notation is a subset of CEL (cel.dev) with one type of number. No crate is suitable: `cel` brings eleven crates and 1.5 MB, rejects `3 * p99`
//! (whole number times fraction) and overflows its stack on deep brackets; `rhai` brings nine crates and 0.7 MB; `somni-expr` has no dotted names,
//! and also distinguishes the two types of number.
//!
//! The result is a list of steps for a stack machine, without loops or jumps: evaluation takes as many steps as the text has words.

use super::figure::Figure;

/// The longest expression, bytes.
pub const LONGEST: usize = 1000;
/// The deepest nesting of brackets, functions and signs.
const DEEPEST: usize = 32;

/// What is wrong with an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The position of the mistake, in bytes from the beginning.
    pub at: usize,
    /// What is wrong, and what to do.
    pub text: String,
    /// The unknown name, if that is the mistake; `text` then suggests no correction.
    pub unknown: Option<String>,
}

/// One step of evaluation: takes its operands from the stack, and leaves its result there.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum EvaluationStep {
    Number(f64),
    Truth(bool),
    Figure(Figure),
    Not,
    Negative,
    Both(Operator),
}

/// An operator with two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Or,
    And,
    Less,
    NotMore,
    More,
    NotLess,
    Equal,
    Unequal,
    Plus,
    Minus,
    Times,
    By,
    Least,
    Most,
}

/// The operators of each level, lowest precedence first.
const LEVELS: [&[(&str, Operator)]; 5] = [
    &[("||", Operator::Or)],
    &[("&&", Operator::And)],
    &[
        ("<=", Operator::NotMore),
        (">=", Operator::NotLess),
        ("==", Operator::Equal),
        ("!=", Operator::Unequal),
        ("<", Operator::Less),
        (">", Operator::More),
    ],
    &[("+", Operator::Plus), ("-", Operator::Minus)],
    &[("*", Operator::Times), ("/", Operator::By)],
];
/// The level whose operators cannot be chained, as in `1 < 2 < 3`.
const COMPARISONS: usize = 2;

const FUNCTIONS: [(&str, Operator); 2] = [("min", Operator::Least), ("max", Operator::Most)];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OperandType {
    Number,
    Truth,
}

impl OperandType {
    fn name(self) -> &'static str {
        match self {
            Self::Number => "a number",
            Self::Truth => "true or false",
        }
    }
}

/// Compiles an expression that is true or false.
///
/// # Errors
/// The first mistake.
pub fn compile(text: &str) -> Result<Vec<EvaluationStep>, Mistake> {
    let mut compiler = Compiler { text, at: 0, depth: 0, steps: Vec::new() };
    if text.len() > LONGEST {
        return Err(compiler.mistake(0, format!("it is longer than {LONGEST} bytes; make two rules of it")));
    }
    let kind = compiler.level(0)?;
    compiler.space();
    if compiler.at < text.len() {
        let instead = match compiler.word() {
            "and" => "; write `&&` for it",
            "or" => "; write `||` for it",
            _ if compiler.rest().starts_with('=') => "; write `==` to compare",
            _ if compiler.rest().starts_with('%') => "; there is no remainder here",
            _ => "; an operator such as `&&`, `>` or `*` belongs here",
        };
        return Err(compiler.unexpected(instead));
    }
    compiler.expect(0, kind, OperandType::Truth, "an expression")?;
    Ok(compiler.steps)
}

struct Compiler<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
    steps: Vec<EvaluationStep>,
}

impl<'t> Compiler<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    fn takes(&mut self, sign: &str) -> bool {
        self.space();
        let is_there = self.rest().starts_with(sign);
        self.at += if is_there { sign.len() } else { 0 };
        is_there
    }

    /// The next letters, digits, `_` and `.`.
    fn word(&self) -> &'t str {
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
        let rest = self.rest();
        rest.get(..rest.find(|c| !is_word(c)).unwrap_or(rest.len())).unwrap_or_default()
    }

    fn mistake(&self, at: usize, text: impl Into<String>) -> Mistake {
        Mistake { at, text: text.into(), unknown: None }
    }

    fn unexpected(&self, instead: &str) -> Mistake {
        let word = self.word();
        let what = match self.rest().chars().next() {
            None => "the expression ends too early".to_owned(),
            Some(_) if !word.is_empty() => format!("`{word}` is not expected here"),
            Some(sign) => format!("`{}` is not expected here", sign.escape_debug()),
        };
        self.mistake(self.at, format!("{what}{instead}"))
    }

    fn expect(&self, at: usize, is: OperandType, wanted: OperandType, what: &str) -> Result<(), Mistake> {
        if is == wanted {
            return Ok(());
        }
        Err(self.mistake(at, format!("{what} must be {}, and this is {}", wanted.name(), is.name())))
    }

    /// Compiles operands that are joined by operators of this level or of a higher precedence.
    fn level(&mut self, level: usize) -> Result<OperandType, Mistake> {
        let Some(operators) = LEVELS.get(level) else { return self.operand() };
        self.space();
        let begun = self.at;
        let mut kind = self.level(level + 1)?;
        let mut compared = false;
        loop {
            self.space();
            let sign_at = self.at;
            let Some((sign, operator)) = operators.iter().find(|(sign, _)| self.takes(sign)) else { return Ok(kind) };
            if compared {
                return Err(
                    self.mistake(sign_at, format!("`{sign}` follows another comparison; connect the two by `&&`"))
                );
            }
            self.space();
            let right_at = self.at;
            let right = self.level(level + 1)?;
            let wanted = match operator {
                Operator::Or | Operator::And => OperandType::Truth,
                Operator::Equal | Operator::Unequal => kind,
                _ => OperandType::Number,
            };
            self.expect(begun, kind, wanted, &format!("the left side of `{sign}`"))?;
            self.expect(right_at, right, wanted, &format!("the right side of `{sign}`"))?;
            self.steps.push(EvaluationStep::Both(*operator));
            if level <= COMPARISONS {
                kind = OperandType::Truth;
            }
            compared = level == COMPARISONS;
        }
    }

    fn operand(&mut self) -> Result<OperandType, Mistake> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.mistake(
                self.at,
                format!("more than {DEEPEST} brackets or signs around something; write less of them"),
            ));
        }
        let kind = self.operand_inside()?;
        self.depth -= 1;
        Ok(kind)
    }

    fn operand_inside(&mut self) -> Result<OperandType, Mistake> {
        self.space();
        let (begun, rest) = (self.at, self.rest());
        // `!=` cannot begin an operand; it is not read as `!`, so that the mistake names `!=`.
        if rest.starts_with('!') && !rest.starts_with("!=") {
            return self.sign("!", OperandType::Truth, EvaluationStep::Not);
        }
        if rest.starts_with('-') {
            return self.sign("-", OperandType::Number, EvaluationStep::Negative);
        }
        if self.takes("(") {
            let kind = self.level(0)?;
            self.close()?;
            return Ok(kind);
        }
        if rest.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
            return self.number();
        }
        let word = self.word();
        if word.is_empty() {
            return Err(self.unexpected("; a figure, a number or a bracket belongs here"));
        }
        self.at += word.len();
        if let Some((_, operator)) = FUNCTIONS.iter().find(|(name, _)| *name == word)
            && self.takes("(")
        {
            return self.function(word, *operator);
        }
        let (step, kind) = match word {
            "true" => (EvaluationStep::Truth(true), OperandType::Truth),
            "false" => (EvaluationStep::Truth(false), OperandType::Truth),
            _ => match Figure::named(word) {
                Some(figure) => (EvaluationStep::Figure(figure), OperandType::Number),
                None => {
                    let text = format!("there is no figure `{word}`");
                    return Err(Mistake { unknown: Some(word.to_owned()), ..self.mistake(begun, text) });
                }
            },
        };
        self.steps.push(step);
        Ok(kind)
    }

    fn sign(&mut self, sign: &str, wanted: OperandType, step: EvaluationStep) -> Result<OperandType, Mistake> {
        self.at += sign.len();
        self.space();
        let at = self.at;
        let kind = self.operand()?;
        self.expect(at, kind, wanted, &format!("what follows `{sign}`"))?;
        self.steps.push(step);
        Ok(kind)
    }

    /// Compiles the arguments of a function. The operator is applied to the first two, then to the result and the third, and so on.
    fn function(&mut self, name: &str, operator: Operator) -> Result<OperandType, Mistake> {
        let mut count = 0;
        loop {
            self.space();
            let at = self.at;
            let kind = self.level(0)?;
            self.expect(at, kind, OperandType::Number, &format!("what `{name}` takes"))?;
            count += 1;
            if count > 1 {
                self.steps.push(EvaluationStep::Both(operator));
            }
            if !self.takes(",") {
                self.close()?;
                return Ok(OperandType::Number);
            }
        }
    }

    fn close(&mut self) -> Result<(), Mistake> {
        if self.takes(")") {
            return Ok(());
        }
        Err(self.unexpected("; a bracket is not closed: write `)`"))
    }

    fn number(&mut self) -> Result<OperandType, Mistake> {
        let begun = self.at;
        let word = self.word();
        self.at += word.len();
        // The sign of a power of ten, as in 1e-3.
        if word.ends_with(['e', 'E']) && self.rest().starts_with(['+', '-']) {
            self.at += 1;
            self.at += self.word().len();
        }
        let written = self.text.get(begun..self.at).unwrap_or_default();
        let is_decimal = |c: char| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-');
        match written.parse::<f64>() {
            Ok(number) if number.is_finite() && written.chars().all(is_decimal) => {
                self.steps.push(EvaluationStep::Number(number));
                Ok(OperandType::Number)
            }
            _ => {
                let text = format!("`{written}` is no number; write it without a unit: times are in milliseconds");
                Err(self.mistake(begun, text))
            }
        }
    }
}
