//! Arithmetic expressions, evaluated while they are read.
//! Owns: the grammar.      Never: recurses deeper than `MAX_DEPTH`.
//! In: an expression.  Out: its value, or an error with its position.
//! Tests: below.

/// Deepest nesting; each level costs a few stack frames, and no legitimate expression comes near.
const MAX_DEPTH: usize = 64;

/// What is wrong with an expression.
#[derive(Debug, PartialEq, thiserror::Error)]
pub(super) enum Wrong {
    #[error("something is missing at the end")]
    End,
    #[error("`{found}` is not expected at character {at}")]
    Unexpected { found: char, at: usize },
    #[error("{name} is not known")]
    Unknown { name: String },
    #[error("it is nested deeper than {MAX_DEPTH} levels")]
    Depth,
}

/// The value of an expression; it may be infinite or NaN.
pub(super) fn evaluate(expression: &str) -> Result<f64, Wrong> {
    let mut reader = Reader { symbols: expression.chars().collect(), at: 0, depth: 0 };
    let value = reader.sum()?;
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(reader.unexpected()),
    }
}

struct Reader {
    symbols: Vec<char>,
    at: usize,
    depth: usize,
}

impl Reader {
    fn sum(&mut self) -> Result<f64, Wrong> {
        let mut value = self.product()?;
        while let Some(sign) = self.take_any("+-") {
            let next = self.product()?;
            value = if sign == '+' { value + next } else { value - next };
        }
        Ok(value)
    }

    fn product(&mut self) -> Result<f64, Wrong> {
        let mut value = self.signed()?;
        while let Some(sign) = self.take_any("*/%×÷") {
            let next = self.signed()?;
            value = match sign {
                '*' | '×' => value * next,
                '%' => value % next,
                _ => value / next,
            };
        }
        Ok(value)
    }

    /// A sign binds less tightly than a power: -2^2 is -4. All recursion passes through here.
    fn signed(&mut self) -> Result<f64, Wrong> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Wrong::Depth);
        }
        let value = match self.take_any("+-") {
            Some('-') => -self.signed()?,
            Some(_) => self.signed()?,
            None => self.power()?,
        };
        self.depth -= 1;
        Ok(value)
    }

    /// Powers are right-associative: 2^3^2 is 2^9.
    fn power(&mut self) -> Result<f64, Wrong> {
        let value = self.operand()?;
        match self.take_any("^") {
            Some(_) => Ok(value.powf(self.signed()?)),
            None => Ok(value),
        }
    }

    fn operand(&mut self) -> Result<f64, Wrong> {
        match self.peek() {
            Some('(') => self.parenthesis(),
            Some(first) if first.is_ascii_digit() || first == '.' => self.literal(),
            Some(first) if first.is_alphabetic() => self.named(),
            Some(_) => Err(self.unexpected()),
            None => Err(Wrong::End),
        }
    }

    fn parenthesis(&mut self) -> Result<f64, Wrong> {
        if self.take_any("(").is_none() {
            return Err(self.unexpected());
        }
        let value = self.sum()?;
        match self.take_any(")") {
            Some(_) => Ok(value),
            None => Err(self.unexpected()),
        }
    }

    fn literal(&mut self) -> Result<f64, Wrong> {
        let from = self.at;
        let mut text = String::new();
        while let Some(&next) = self.symbols.get(self.at) {
            let exponent_sign = matches!(next, '+' | '-') && text.ends_with(['e', 'E']);
            let exponent = matches!(next, 'e' | 'E')
                && self
                    .symbols
                    .get(self.at + 1)
                    .is_some_and(|c| c.is_ascii_digit() || "+-".contains(*c));
            if !(next.is_ascii_digit() || matches!(next, '.' | '_') || exponent || exponent_sign) {
                break;
            }
            text.push(next);
            self.at += 1;
        }
        let found = self.symbols[from];
        text.replace('_', "").parse().map_err(|_| Wrong::Unexpected { found, at: from + 1 })
    }

    fn named(&mut self) -> Result<f64, Wrong> {
        let mut name = String::new();
        while let Some(next) = self.symbols.get(self.at).filter(|next| next.is_alphanumeric()) {
            name.push(*next);
            self.at += 1;
        }
        let function: fn(f64) -> f64 = match name.to_lowercase().as_str() {
            "pi" => return Ok(std::f64::consts::PI),
            "e" => return Ok(std::f64::consts::E),
            "sqrt" => f64::sqrt,
            "abs" => f64::abs,
            "ln" => f64::ln,
            "log10" => f64::log10,
            "exp" => f64::exp,
            "sin" => f64::sin,
            "cos" => f64::cos,
            "tan" => f64::tan,
            "floor" => f64::floor,
            "ceil" => f64::ceil,
            "round" => f64::round,
            _ => return Err(Wrong::Unknown { name }),
        };
        Ok(function(self.parenthesis()?))
    }

    fn peek(&mut self) -> Option<char> {
        while self.symbols.get(self.at).is_some_and(|next| next.is_whitespace()) {
            self.at += 1;
        }
        self.symbols.get(self.at).copied()
    }

    fn take_any(&mut self, wanted: &str) -> Option<char> {
        let next = self.peek().filter(|next| wanted.contains(*next))?;
        self.at += 1;
        Some(next)
    }

    fn unexpected(&mut self) -> Wrong {
        match self.peek() {
            Some(found) => Wrong::Unexpected { found, at: self.at + 1 },
            None => Wrong::End,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let known = [
            ("1 + 2 * 3", 7.0),
            ("(1 + 2) * 3", 9.0),
            ("-2 ^ 2", -4.0),
            ("2 ^ 3 ^ 2", 512.0),
            ("2 ^ -1", 0.5),
            ("10 - 4 - 3", 3.0),
            ("17 % 5 / 4", 0.5),
            ("1e3 + 1.5e-1 + 1_000", 2_000.15),
            ("sqrt(16) + round(2.6) - abs(-1)", 6.0),
            ("2 * pi / PI", 2.0),
            ("ln(e)", 1.0),
            (".5 × 4", 2.0),
        ];
        for (expression, value) in known {
            assert_eq!(evaluate(expression), Ok(value), "{expression}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        let known = [
            ("", "something is missing at the end"),
            ("1 +", "something is missing at the end"),
            ("(1", "something is missing at the end"),
            ("1 2", "`2` is not expected at character 3"),
            ("2 $ 2", "`$` is not expected at character 3"),
            ("1.2.3", "`1` is not expected at character 1"),
            ("foo(1)", "foo is not known"),
            ("sqrt 4", "`4` is not expected at character 6"),
        ];
        for (expression, wrong) in known {
            assert_eq!(evaluate(expression).unwrap_err().to_string(), wrong, "{expression}");
        }
        for deep in
            ["(".repeat(100_000), "-".repeat(100_000), "2^".repeat(100_000), "abs(".repeat(100_000)]
        {
            assert_eq!(evaluate(&deep), Err(Wrong::Depth));
        }
    }
}
