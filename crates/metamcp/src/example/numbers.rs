//! The example server `numbers`: statistics, arithmetic, units and number bases.
//! Owns: its tools.      Never: returns infinities, which JSON cannot represent.
//! In: numbers, expressions, unit names.  Out: numbers.
//! Tests: below; expressions in `numbers/evaluate.rs`.

mod evaluate;
mod units;

use serde_json::{Value, json};

use super::declare::{
    Answer, Arguments, COUNT, Effect, Kind, Refusal, Tool, WHOLE, may, must, refuse,
};
use super::serve::Service;
use units::{UNITS, unit};

/// The server has no state.
pub(super) struct Numbers;

/// Largest number that trial division factors without a noticeable delay.
const MAX_FACTORED: i64 = 1_000_000_000_000;

const NUMBERS: Kind = Kind::List(&Kind::Number);

pub(super) static SERVICE: Service<Numbers> = Service {
    name: "numbers",
    title: "Example numbers",
    instructions: "Use evaluate for arithmetic rather than working it out in prose.",
    tools: &[
        Tool {
            name: "statistics",
            title: "Summarise numbers",
            description: "Compute count, sum, mean (average), median, minimum, maximum, variance and standard deviation of a list of numbers.",
            effect: Effect::Reads,
            takes: &[must("values", NUMBERS, "The numbers, at least one.")],
            gives: &[
                must("count", COUNT, ""),
                must("sum", Kind::Number, ""),
                must("mean", Kind::Number, ""),
                must("median", Kind::Number, ""),
                must("minimum", Kind::Number, ""),
                must("maximum", Kind::Number, ""),
                must("variance", Kind::Number, "Of a sample: divided by count - 1."),
                must("standard_deviation", Kind::Number, ""),
            ],
            run: statistics,
        },
        Tool {
            name: "correlate",
            title: "Relate two series",
            description: "Fit a straight line through pairs of numbers by least squares and tell how well it fits: slope, intercept and correlation coefficient.",
            effect: Effect::Reads,
            takes: &[
                must("x", NUMBERS, "First series, at least two different numbers."),
                must("y", NUMBERS, "Second series, of the same length."),
            ],
            gives: &[
                must("slope", Kind::Number, ""),
                must("intercept", Kind::Number, ""),
                may("correlation", Kind::Number, "From -1 to 1; left out where y does not vary."),
            ],
            run: correlate,
        },
        Tool {
            name: "convert_unit",
            title: "Convert units",
            description: "Convert a value between units of length, mass, volume, time, speed, data size or temperature.",
            effect: Effect::Reads,
            takes: &[
                must("value", Kind::Number, "The amount."),
                must("from", Kind::Text, "Unit it is in, for example mi, pound or °F."),
                must("to", Kind::Text, "Unit wanted. list_units shows all."),
            ],
            gives: &[must("value", Kind::Number, ""), must("unit", Kind::Text, "")],
            run: convert_unit,
        },
        Tool {
            name: "list_units",
            title: "List units",
            description: "List the units convert_unit knows, by dimension.",
            effect: Effect::Reads,
            takes: &[may("dimension", Kind::Text, "Only one dimension, for example length.")],
            gives: &[],
            run: list_units,
        },
        Tool {
            name: "evaluate",
            title: "Calculate",
            description: "Evaluate an arithmetic expression with + - * / % ^, parentheses, pi, e, and the functions sqrt, abs, ln, log10, exp, sin, cos, tan, floor, ceil and round.",
            effect: Effect::Reads,
            takes: &[must("expression", Kind::Text, "For example (1.5 + 2) * sqrt(16) ^ 2.")],
            gives: &[must("value", Kind::Number, "")],
            run: calculate,
        },
        Tool {
            name: "convert_base",
            title: "Convert number bases",
            description: "Write a whole number in another base, for example hexadecimal as decimal or decimal as binary.",
            effect: Effect::Reads,
            takes: &[
                must(
                    "digits",
                    Kind::Text,
                    "The number, for example ff or -1011; a 0x, 0o or 0b in front sets the base.",
                ),
                may("from", Kind::Whole(2, 36), "Base it is written in. Default: 10."),
                may("to", Kind::Whole(2, 36), "Base wanted. Default: 10."),
            ],
            gives: &[],
            run: convert_base,
        },
        Tool {
            name: "factorize",
            title: "Find prime factors",
            description: "Take a whole number apart into its prime factors, and tell whether it is prime.",
            effect: Effect::Reads,
            takes: &[must("number", Kind::Whole(2, MAX_FACTORED), "")],
            gives: &[
                must(
                    "factors",
                    Kind::List(&WHOLE),
                    "Smallest first, repeated as often as they divide.",
                ),
                must("prime", Kind::Flag, ""),
            ],
            run: factorize,
        },
    ],
};

fn statistics(_: &mut Numbers, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let mut values = arguments.numbers("values");
    if values.is_empty() {
        refuse!("values must hold at least one number");
    }
    values.sort_by(f64::total_cmp);
    let (count, middle) = (values.len(), values.len() / 2);
    let sum: f64 = values.iter().sum();
    let mean = sum / count as f64;
    let spread: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let variance = if count > 1 { spread / (count - 1) as f64 } else { 0.0 };
    let median = if count % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    };
    finite([sum, variance])?;
    Ok(Answer::Data(json!({
        "count": count,
        "sum": sum,
        "mean": mean,
        "median": median,
        "minimum": values[0],
        "maximum": values[count - 1],
        "variance": variance,
        "standard_deviation": variance.sqrt(),
    })))
}

fn correlate(_: &mut Numbers, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let (x, y) = (arguments.numbers("x"), arguments.numbers("y"));
    if x.len() != y.len() {
        refuse!("x has {} numbers and y has {}; they must be pairs", x.len(), y.len());
    }
    let count = x.len() as f64;
    let (mean_x, mean_y) = (x.iter().sum::<f64>() / count, y.iter().sum::<f64>() / count);
    let pairs = || x.iter().zip(&y).map(|(x, y)| (x - mean_x, y - mean_y));
    let (xx, yy): (f64, f64) =
        (pairs().map(|(x, _)| x * x).sum(), pairs().map(|(_, y)| y * y).sum());
    let xy: f64 = pairs().map(|(x, y)| x * y).sum();
    if x.len() < 2 || xx == 0.0 {
        refuse!("x must hold at least two different numbers");
    }
    let slope = xy / xx;
    let intercept = mean_y - slope * mean_x;
    finite([slope, intercept, xx, yy])?;
    let mut fit = json!({ "slope": slope, "intercept": intercept });
    if yy > 0.0 {
        fit["correlation"] = tidy(xy / (xx.sqrt() * yy.sqrt()));
    }
    Ok(Answer::Data(fit))
}

fn convert_unit(_: &mut Numbers, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let (from, to) = (unit(arguments.text("from"))?, unit(arguments.text("to"))?);
    if from.2 != to.2 {
        refuse!("{} measures {}, {} measures {}", from.0, from.2, to.0, to.2);
    }
    let value = units::converted(arguments.number("value"), from, to);
    finite([value])?;
    Ok(Answer::Data(json!({ "value": tidy(value), "unit": to.0 })))
}

fn list_units(_: &mut Numbers, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let mut dimensions: Vec<&str> = UNITS.iter().map(|unit| unit.2).collect();
    dimensions.dedup();
    if let Some(wanted) = arguments.text_if("dimension") {
        if !dimensions.contains(&wanted) {
            refuse!("dimension {wanted} is not known; known are {}", dimensions.join(", "));
        }
        dimensions = vec![wanted];
    }
    let lines = dimensions.iter().map(|dimension| {
        let units: Vec<&str> =
            UNITS.iter().filter(|unit| unit.2 == *dimension).map(|unit| unit.0).collect();
        format!("{dimension}: {}\n", units.join(", "))
    });
    Ok(Answer::Text(lines.collect()))
}

fn calculate(_: &mut Numbers, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    match evaluate::evaluate(arguments.text("expression")) {
        Ok(value) => {
            finite([value])?;
            Ok(Answer::Data(json!({ "value": value })))
        }
        Err(wrong) => refuse!("the expression cannot be evaluated: {wrong}"),
    }
}

fn convert_base(_: &mut Numbers, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let given = arguments.text("digits").trim().to_lowercase().replace('_', "");
    let (negative, digits) =
        given.strip_prefix('-').map_or((false, given.as_str()), |rest| (true, rest));
    let base =
        |name| arguments.whole_if(name).and_then(|base| u32::try_from(base).ok()).unwrap_or(10);
    let prefixes = [("0x", 16), ("0o", 8), ("0b", 2)];
    // With an explicit base, a leading `0b` is digits: 0b is eleven in base 16.
    let prefixed =
        prefixes.iter().find_map(|(mark, base)| Some((digits.strip_prefix(mark)?, *base)));
    let (digits, from) = match prefixed {
        Some(found) if arguments.whole_if("from").is_none_or(|from| from == i64::from(found.1)) => {
            found
        }
        _ => (digits, base("from")),
    };
    let Ok(mut number) = u128::from_str_radix(digits.trim_start_matches('+'), from) else {
        refuse!("`{given}` is not a number of at most 128 bits in base {from}");
    };
    let mut written = Vec::new();
    let to = u128::from(base("to"));
    while number > 0 || written.is_empty() {
        let digit = u32::try_from(number % to).unwrap_or(0);
        written.push(char::from_digit(digit, 36).unwrap_or('0'));
        number /= to;
    }
    let sign = if negative { "-" } else { "" };
    Ok(Answer::Text(format!("{sign}{}", written.iter().rev().collect::<String>())))
}

#[expect(clippy::unnecessary_wraps, reason = "every tool has this signature")]
fn factorize(_: &mut Numbers, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let mut rest = arguments.whole_if("number").unwrap_or(2);
    let mut factors: Vec<i64> = Vec::new();
    let mut candidate = 2;
    while candidate * candidate <= rest {
        while rest % candidate == 0 {
            factors.push(candidate);
            rest /= candidate;
        }
        candidate += if candidate == 2 { 1 } else { 2 };
    }
    if rest > 1 {
        factors.push(rest);
    }
    Ok(Answer::Data(json!({ "prime": factors.len() == 1, "factors": factors })))
}

fn finite<const N: usize>(values: [f64; N]) -> Result<(), Refusal> {
    if values.iter().all(|value| value.is_finite()) {
        return Ok(());
    }
    refuse!("the result is too large or not defined");
}

/// Rounds to twelve significant digits, to remove the floating-point noise of the factors.
fn tidy(value: f64) -> Value {
    json!(format!("{value:.11e}").parse().unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, arguments: Value) -> Result<Value, String> {
        let tool = SERVICE.tools.iter().find(|known| known.name == tool).unwrap();
        let Value::Object(given) = arguments else { panic!("arguments are an object") };
        let answer = Arguments::checked(tool.takes, &given)
            .and_then(|arguments| (tool.run)(&mut Numbers, &arguments));
        match answer {
            Ok(Answer::Data(data)) => Ok(data),
            Ok(Answer::Text(text)) => Ok(json!(text)),
            Err(Refusal(why)) => Err(why),
        }
    }

    #[test]
    fn statistics_of_a_known_list() {
        let known = call("statistics", json!({ "values": [2, 4, 4, 4, 5, 5, 7, 9] })).unwrap();
        assert_eq!(
            (&known["mean"], &known["median"], &known["sum"]),
            (&json!(5.0), &json!(4.5), &json!(40.0))
        );
        assert!((known["variance"].as_f64().unwrap() - 32.0 / 7.0).abs() < 1e-12);
        assert_eq!(call("statistics", json!({ "values": [3] })).unwrap()["variance"], 0.0);
        assert!(call("statistics", json!({ "values": [] })).is_err());
        assert!(
            call("statistics", json!({ "values": [1e308, 1e308] }))
                .unwrap_err()
                .contains("too large")
        );
        let line = call("correlate", json!({ "x": [1, 2, 3], "y": [3, 5, 7] })).unwrap();
        assert_eq!(line, json!({ "slope": 2.0, "intercept": 1.0, "correlation": 1.0 }));
        assert!(call("correlate", json!({ "x": [1], "y": [1] })).is_err());
    }

    #[test]
    fn units() {
        let known = [
            (26.2, "mi", "km", 42.164_812_8),
            (98.6, "fahrenheit", "celsius", 37.0),
            (-40.0, "°C", "°F", -40.0),
            (3.0, "Feet", "inches", 36.0),
            (1.0, "GiB", "MB", 1_073.741_824),
            (90.0, "km/h", "m/s", 25.0),
        ];
        for (value, from, to, expected) in known {
            let converted =
                call("convert_unit", json!({ "value": value, "from": from, "to": to })).unwrap();
            assert_eq!(converted["value"], expected, "{value} {from}");
        }
        let mixed =
            call("convert_unit", json!({ "value": 1, "from": "kg", "to": "km" })).unwrap_err();
        assert_eq!(mixed, "kg measures mass, km measures length");
        assert!(
            call("list_units", json!({ "dimension": "mass" }))
                .unwrap()
                .as_str()
                .unwrap()
                .starts_with("mass: kg")
        );
    }

    #[test]
    fn bases_and_factors() {
        let known = [
            (json!({ "digits": "0xff" }), "255"),
            (json!({ "digits": "255", "to": 2 }), "11111111"),
            (json!({ "digits": "-zz", "from": 36, "to": 10 }), "-1295"),
            (json!({ "digits": "0b", "from": 16 }), "11"),
            (json!({ "digits": "0" , "to": 7 }), "0"),
        ];
        for (arguments, expected) in known {
            assert_eq!(call("convert_base", arguments).unwrap(), expected);
        }
        assert!(call("convert_base", json!({ "digits": "12", "from": 2 })).is_err());
        let factors = call("factorize", json!({ "number": 360 })).unwrap();
        assert_eq!(factors, json!({ "prime": false, "factors": [2, 2, 2, 3, 3, 5] }));
        assert_eq!(
            call("factorize", json!({ "number": 999_999_999_989_i64 })).unwrap()["prime"],
            true
        );
    }
}
