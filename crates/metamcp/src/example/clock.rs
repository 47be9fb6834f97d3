//! The example server `clock`: the time now, and arithmetic on times and dates.
//! Owns: reading the system clock for its tools.      Never: knows time zones by name (that takes a database).
//! In: RFC 3339 times, fixed offsets from UTC.  Out: the same, and their parts.
//! Tests: below; dates in `clock/civil.rs`.

pub(super) mod civil;

use metamcp_engine::clock;
use serde_json::{Value, json};

use super::declare::{
    Answer, Arguments, Effect, Field, Kind, Refusal, Tool, WHOLE, may, must, refuse,
};
use super::serve::Service;
use civil::{Date, Offset, Stamp};

/// The server has no state of its own.
pub(super) struct Clock;

/// Largest amount of any unit in `add_duration`: ten thousand years of seconds, beyond which no date is representable.
const MOST: i64 = 316_000_000_000;

const OFFSET: &str = "UTC or a fixed offset such as +02:00 or -0530. Place names such as Europe/Rome are not known here.";
const TIME: &str = "RFC 3339 time, for example 2025-03-01T09:30:00Z.";
const DATE: &str = "Date as 2025-03-01, or an RFC 3339 time of which the date is taken.";

const MOMENT: &[Field] = &[
    must("time", Kind::Text, "RFC 3339."),
    must("weekday", Kind::Text, ""),
    must("unix", WHOLE, "Seconds since 1970-01-01T00:00:00Z."),
];

const fn amount(name: &'static str) -> Field {
    may(name, Kind::Whole(-MOST, MOST), "")
}

pub(super) static SERVICE: Service<Clock> = Service {
    name: "clock",
    title: "Example clock",
    instructions: "Zones are UTC or fixed offsets; look up a place's offset elsewhere.",
    tools: &[
        Tool {
            name: "now",
            title: "Current time",
            description: "Tell the current date and time, in UTC or at a fixed offset from UTC.",
            effect: Effect::Reads,
            takes: &[may("offset", Kind::Text, OFFSET)],
            gives: MOMENT,
            run: now,
        },
        Tool {
            name: "convert",
            title: "Convert between time zones",
            description: "Express a time at another offset from UTC. The moment stays the same, the reading on the wall changes.",
            effect: Effect::Reads,
            takes: &[must("time", Kind::Text, TIME), must("offset", Kind::Text, OFFSET)],
            gives: MOMENT,
            run: convert,
        },
        Tool {
            name: "add_duration",
            title: "Add a duration to a time",
            description: "Add years, months, weeks, days, hours, minutes and seconds to a date and time, or subtract with negative amounts. Where a month is too short the last day of it is taken, so January 31 and one month make the end of February.",
            effect: Effect::Reads,
            takes: &[
                must("time", Kind::Text, TIME),
                amount("years"),
                amount("months"),
                amount("weeks"),
                amount("days"),
                amount("hours"),
                amount("minutes"),
                amount("seconds"),
            ],
            gives: MOMENT,
            run: add_duration,
        },
        Tool {
            name: "days_between",
            title: "Count days between dates",
            description: "Count the calendar days from one date to another, and how many of them are working days from Monday to Friday. Negative where the second date is earlier.",
            effect: Effect::Reads,
            takes: &[must("from", Kind::Text, DATE), must("to", Kind::Text, DATE)],
            gives: &[
                must(
                    "days",
                    WHOLE,
                    "Days from the first date to the second, which is not counted itself.",
                ),
                must(
                    "working_days",
                    WHOLE,
                    "Those that are Monday to Friday; holidays are not known.",
                ),
                must("from_weekday", Kind::Text, ""),
                must("to_weekday", Kind::Text, ""),
            ],
            run: days_between,
        },
        Tool {
            name: "parse",
            title: "Take a time apart",
            description: "Check an RFC 3339 time and answer with its parts: year, month, day, time of day, offset, weekday, day of the year, ISO week and Unix seconds.",
            effect: Effect::Reads,
            takes: &[must("time", Kind::Text, TIME)],
            gives: &[
                must("time", Kind::Text, "The same moment in UTC."),
                must("year", WHOLE, ""),
                must("month", WHOLE, ""),
                must("day", WHOLE, ""),
                must("hour", WHOLE, ""),
                must("minute", WHOLE, ""),
                must("second", WHOLE, ""),
                must("offset", Kind::Text, ""),
                must("weekday", Kind::Text, ""),
                must("day_of_year", WHOLE, ""),
                must("iso_week", Kind::Text, "As 2025-W09."),
                must("leap_year", Kind::Flag, ""),
                must("unix", WHOLE, ""),
            ],
            run: parse,
        },
    ],
};

fn now(_: &mut Clock, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let stamp = Stamp::from_unix(i64::try_from(clock::unix_millis() / 1000).unwrap_or(0));
    Ok(moment(stamp.at(offset(arguments.text_if("offset").unwrap_or("UTC"))?)))
}

fn convert(_: &mut Clock, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    Ok(moment(time(arguments.text("time"))?.at(offset(arguments.text("offset"))?)))
}

fn add_duration(_: &mut Clock, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let amount = |name| i128::from(arguments.whole_if(name).unwrap_or(0));
    let months = amount("years") * 12 + amount("months");
    let days = amount("weeks") * 7 + amount("days");
    let seconds = ((days * 24 + amount("hours")) * 60 + amount("minutes")) * 60 + amount("seconds");
    let added = time(arguments.text("time"))?
        .plus_months(months)
        .and_then(|stamp| stamp.plus_seconds(seconds));
    match added {
        Some(stamp) => Ok(moment(stamp)),
        None => refuse!("the result is outside the years 0000 to 9999"),
    }
}

fn days_between(_: &mut Clock, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let (from, to) = (date(arguments.text("from"))?, date(arguments.text("to"))?);
    Ok(Answer::Data(json!({
        "days": to.days() - from.days(),
        "working_days": civil::working_days(from, to),
        "from_weekday": from.weekday(),
        "to_weekday": to.weekday(),
    })))
}

fn parse(_: &mut Clock, arguments: &Arguments<'_>) -> Result<Answer, Refusal> {
    let stamp = time(arguments.text("time"))?;
    let (date, (hour, minute, second)) = (stamp.date(), stamp.time_of_day());
    let (week_year, week) = date.iso_week();
    Ok(Answer::Data(json!({
        "time": stamp.at(Offset::UTC).to_string(),
        "year": date.year,
        "month": date.month,
        "day": date.day,
        "hour": hour,
        "minute": minute,
        "second": second,
        "offset": stamp.offset.to_string(),
        "weekday": date.weekday(),
        "day_of_year": date.day_of_year(),
        "iso_week": format!("{week_year:04}-W{week:02}"),
        "leap_year": civil::is_leap(date.year),
        "unix": stamp.unix,
    })))
}

fn moment(stamp: Stamp) -> Answer {
    let data: Value =
        json!({ "time": stamp.to_string(), "weekday": stamp.date().weekday(), "unix": stamp.unix });
    Answer::Data(data)
}

fn time(text: &str) -> Result<Stamp, Refusal> {
    match text.parse() {
        Ok(stamp) => Ok(stamp),
        Err(wrong) => refuse!("`{text}` is not an RFC 3339 time: {wrong}"),
    }
}

fn date(text: &str) -> Result<Date, Refusal> {
    match text.parse().or_else(|wrong| text.parse::<Stamp>().map(Stamp::date).map_err(|_| wrong)) {
        Ok(date) => Ok(date),
        Err(wrong) => refuse!("`{text}` is not a date: {wrong}"),
    }
}

fn offset(text: &str) -> Result<Offset, Refusal> {
    match text.parse() {
        Ok(offset) => Ok(offset),
        Err(_) => refuse!(
            "`{text}` is not an offset this clock knows; use UTC or a fixed one such as +02:00"
        ),
    }
}
