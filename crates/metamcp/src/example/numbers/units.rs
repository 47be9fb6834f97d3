//! Units of measure and how they convert.
//! Owns: the table.      Never: checks dimensions; its caller does.
//! In: names, values.  Out: units, values.
//! Tests: `numbers.rs`.

use crate::example::declare::{Refusal, refuse};

/// Name, aliases, dimension, and its size in the dimension's base unit.
pub(super) type Unit = (&'static str, &'static [&'static str], &'static str, f64);

pub(super) const UNITS: &[Unit] = &[
    ("m", &["meter", "metre"], "length", 1.0),
    ("km", &["kilometer", "kilometre"], "length", 1_000.0),
    ("cm", &["centimeter", "centimetre"], "length", 0.01),
    ("mm", &["millimeter", "millimetre"], "length", 0.001),
    ("in", &["inch", "inches"], "length", 0.0254),
    ("ft", &["foot", "feet"], "length", 0.3048),
    ("yd", &["yard"], "length", 0.9144),
    ("mi", &["mile"], "length", 1_609.344),
    ("kg", &["kilogram"], "mass", 1.0),
    ("g", &["gram"], "mass", 0.001),
    ("t", &["tonne"], "mass", 1_000.0),
    ("lb", &["pound"], "mass", 0.453_592_37),
    ("oz", &["ounce"], "mass", 0.028_349_523_125),
    ("l", &["liter", "litre"], "volume", 1.0),
    ("ml", &["milliliter", "millilitre"], "volume", 0.001),
    ("gal", &["gallon"], "volume", 3.785_411_784),
    ("s", &["second"], "time", 1.0),
    ("min", &["minute"], "time", 60.0),
    ("h", &["hour"], "time", 3_600.0),
    ("d", &["day"], "time", 86_400.0),
    ("m/s", &[], "speed", 1.0),
    ("km/h", &["kph"], "speed", 1.0 / 3.6),
    ("mph", &[], "speed", 0.447_04),
    ("kn", &["knot"], "speed", 1_852.0 / 3_600.0),
    ("B", &["byte"], "data", 1.0),
    ("kB", &["kilobyte"], "data", 1e3),
    ("MB", &["megabyte"], "data", 1e6),
    ("GB", &["gigabyte"], "data", 1e9),
    ("KiB", &["kibibyte"], "data", 1_024.0),
    ("MiB", &["mebibyte"], "data", 1_048_576.0),
    ("GiB", &["gibibyte"], "data", 1_073_741_824.0),
    ("K", &["kelvin"], "temperature", 1.0),
    ("C", &["celsius", "°C"], "temperature", 1.0),
    ("F", &["fahrenheit", "°F"], "temperature", 5.0 / 9.0),
];

/// Converts `value` from `from` to `to`, which measure the same dimension.
pub(super) fn converted(value: f64, from: &Unit, to: &Unit) -> f64 {
    // Only temperatures have an offset zero: these values, in kelvin.
    let zero = |unit: &Unit| match unit.0 {
        "C" => 273.15,
        "F" => 459.67 * unit.3,
        _ => 0.0,
    };
    (value * from.3 + zero(from) - zero(to)) / to.3
}

/// A unit by symbol, which is case-sensitive since `mb` and `MB` differ, or by name, singular or plural.
pub(super) fn unit(name: &str) -> Result<&'static Unit, Refusal> {
    let folded = name.trim().to_lowercase();
    let singular = folded.strip_suffix('s').filter(|rest| rest.len() > 2).unwrap_or(&folded);
    let by_symbol =
        UNITS.iter().find(|unit| unit.0 == name.trim() || unit.1.contains(&name.trim()));
    let by_name = || {
        UNITS.iter().find(|unit| unit.1.contains(&singular) || unit.1.contains(&folded.as_str()))
    };
    match by_symbol.or_else(by_name) {
        Some(unit) => Ok(unit),
        None => refuse!("unit {name} is not known; list_units shows those that are"),
    }
}
