//! Evaluates a compiled expression.
//!
//! An unknown value makes what depends on it unknown. But `true || x` is true and `false && x` is false, whatever `x` is, as in CEL. Division by
//! zero, and a result that is not a finite number, are unknown, too.

use super::{
    compile::{EvaluationStep, Operator},
    figure::Figure,
};

/// The result of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Evaluation {
    /// Whether the expression is true; false if that is unknown.
    pub holds: bool,
    /// What could not be calculated.
    pub fault: Option<EvaluationFault>,
}

/// Why a value cannot be calculated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvaluationFault {
    /// A division by zero.
    Zero,
    /// A result that is too large.
    TooLarge,
}

impl EvaluationFault {
    /// The fault in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zero => "a division by zero",
            Self::TooLarge => "a number that is too large",
        }
    }
}

#[derive(Clone, Copy)]
enum Operand {
    Number(f64),
    Truth(bool),
    Unknown,
}

/// Evaluates the steps; `figure` returns a figure's value, `None` if it is not known.
pub fn evaluate(steps: &[EvaluationStep], figure: impl Fn(Figure) -> Option<f64>) -> Evaluation {
    let mut stack: Vec<Operand> = Vec::with_capacity(8);
    let mut fault = None;
    for step in steps {
        let value = match step {
            EvaluationStep::Number(number) => Operand::Number(*number),
            EvaluationStep::Truth(truth) => Operand::Truth(*truth),
            EvaluationStep::Figure(asked) => figure(*asked).map_or(Operand::Unknown, Operand::Number),
            EvaluationStep::Not => match stack.pop() {
                Some(Operand::Truth(truth)) => Operand::Truth(!truth),
                _ => Operand::Unknown,
            },
            EvaluationStep::Negative => match stack.pop() {
                Some(Operand::Number(number)) => Operand::Number(-number),
                _ => Operand::Unknown,
            },
            EvaluationStep::Both(operator) => {
                let (right, left) = (stack.pop(), stack.pop());
                both(*operator, left.unwrap_or(Operand::Unknown), right.unwrap_or(Operand::Unknown), &mut fault)
            }
        };
        stack.push(value);
    }
    Evaluation { holds: matches!(stack.pop(), Some(Operand::Truth(true))), fault }
}

fn both(operator: Operator, left: Operand, right: Operand, fault: &mut Option<EvaluationFault>) -> Operand {
    use Operand::{Number, Truth, Unknown};
    match (operator, left, right) {
        (Operator::Or, Truth(true), _) | (Operator::Or, _, Truth(true)) => Truth(true),
        (Operator::And, Truth(false), _) | (Operator::And, _, Truth(false)) => Truth(false),
        (Operator::Or, Truth(false), Truth(false)) => Truth(false),
        (Operator::And, Truth(true), Truth(true)) => Truth(true),
        (Operator::Equal, Truth(left), Truth(right)) => Truth(left == right),
        (Operator::Unequal, Truth(left), Truth(right)) => Truth(left != right),
        (operator, Number(left), Number(right)) => of_numbers(operator, left, right, fault),
        _ => Unknown,
    }
}

fn of_numbers(operator: Operator, left: f64, right: f64, fault: &mut Option<EvaluationFault>) -> Operand {
    let number = match operator {
        Operator::Less => return Operand::Truth(left < right),
        Operator::NotMore => return Operand::Truth(left <= right),
        Operator::More => return Operand::Truth(left > right),
        Operator::NotLess => return Operand::Truth(left >= right),
        Operator::Equal => return Operand::Truth(left == right),
        Operator::Unequal => return Operand::Truth(left != right),
        Operator::By if right == 0.0 => {
            fault.get_or_insert(EvaluationFault::Zero);
            return Operand::Unknown;
        }
        Operator::Plus => left + right,
        Operator::Minus => left - right,
        Operator::Times => left * right,
        Operator::By => left / right,
        Operator::Least => left.min(right),
        Operator::Most => left.max(right),
        Operator::Or | Operator::And => return Operand::Unknown,
    };
    if number.is_finite() {
        return Operand::Number(number);
    }
    fault.get_or_insert(EvaluationFault::TooLarge);
    Operand::Unknown
}
