//! Evaluates a compiled expression.
//!
//! What is not known makes what depends on it unknown; but `true || x` is true and `false && x` is false, whatever `x` is, as
//! CEL has it. Division by zero, and a result that is no finite number, are not known either.

use super::{
    compile::{Operator, Step},
    figure::Figure,
};

/// The result of an evaluation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Whether the expression is true. What is not known is not.
    pub holds: bool,
    /// What could not be calculated.
    pub fault: Option<Fault>,
}

/// What cannot be calculated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A division by zero.
    Zero,
    /// A number that is too large.
    TooLarge,
}

impl Fault {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Zero => "a division by zero",
            Self::TooLarge => "a number that is too large",
        }
    }
}

#[derive(Clone, Copy)]
enum Value {
    Number(f64),
    Truth(bool),
    Unknown,
}

/// Evaluates the steps; `figure` returns a figure's value, `None` if it is not known.
pub fn evaluate(steps: &[Step], figure: impl Fn(Figure) -> Option<f64>) -> Answer {
    let mut stack: Vec<Value> = Vec::with_capacity(8);
    let mut fault = None;
    for step in steps {
        let value = match step {
            Step::Number(number) => Value::Number(*number),
            Step::Truth(truth) => Value::Truth(*truth),
            Step::Figure(asked) => figure(*asked).map_or(Value::Unknown, Value::Number),
            Step::Not => match stack.pop() {
                Some(Value::Truth(truth)) => Value::Truth(!truth),
                _ => Value::Unknown,
            },
            Step::Negative => match stack.pop() {
                Some(Value::Number(number)) => Value::Number(-number),
                _ => Value::Unknown,
            },
            Step::Both(operator) => {
                let (right, left) = (stack.pop(), stack.pop());
                both(*operator, left.unwrap_or(Value::Unknown), right.unwrap_or(Value::Unknown), &mut fault)
            }
        };
        stack.push(value);
    }
    Answer { holds: matches!(stack.pop(), Some(Value::Truth(true))), fault }
}

fn both(operator: Operator, left: Value, right: Value, fault: &mut Option<Fault>) -> Value {
    use Value::{Number, Truth, Unknown};
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

fn of_numbers(operator: Operator, left: f64, right: f64, fault: &mut Option<Fault>) -> Value {
    let number = match operator {
        Operator::Less => return Value::Truth(left < right),
        Operator::NotMore => return Value::Truth(left <= right),
        Operator::More => return Value::Truth(left > right),
        Operator::NotLess => return Value::Truth(left >= right),
        Operator::Equal => return Value::Truth(left == right),
        Operator::Unequal => return Value::Truth(left != right),
        Operator::By if right == 0.0 => {
            fault.get_or_insert(Fault::Zero);
            return Value::Unknown;
        }
        Operator::Plus => left + right,
        Operator::Minus => left - right,
        Operator::Times => left * right,
        Operator::By => left / right,
        Operator::Least => left.min(right),
        Operator::Most => left.max(right),
        Operator::Or | Operator::And => return Value::Unknown,
    };
    if number.is_finite() {
        return Value::Number(number);
    }
    fault.get_or_insert(Fault::TooLarge);
    Value::Unknown
}
