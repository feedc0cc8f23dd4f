//! The fields that the layer adds to responses.

use std::time::{Duration, UNIX_EPOCH};

use http::HeaderMap;
use http::header::{HeaderName, HeaderValue};

use super::error::LayerError;
use super::kept::{is_of_one_message, is_of_the_body};

/// Until when repeats get the response, as an HTTP date.
pub(super) const IDEMPOTENCY_EXPIRES: HeaderName = HeaderName::from_static("idempotency-expires");

/// Marks a replay. One that comes from further inside is not stored, and does not belong on a first answer either.
#[derive(Clone, Debug)]
pub(super) struct Marker {
    pub(super) name: HeaderName,
    pub(super) value: HeaderValue,
    mistake: Option<LayerError>,
}

impl Marker {
    pub(super) fn new(name: &str, value: &str) -> Self {
        let mistaken = |mistake| Self { mistake: Some(mistake), ..Self::default() };
        let Ok(parsed) = HeaderName::from_bytes(name.as_bytes()) else {
            return mistaken(LayerError::HeaderName(name.to_owned()));
        };
        if is_of_one_message(&parsed) || is_of_the_body(&parsed) || parsed == IDEMPOTENCY_EXPIRES {
            return mistaken(LayerError::Marker(parsed.to_string()));
        }
        // White space around a value is no part of it (RFC 9110, section 5.5).
        match HeaderValue::from_str(value) {
            Ok(parsed_value) if !value.is_empty() && value.trim() == value => {
                Self { name: parsed, value: parsed_value, mistake: None }
            }
            _ => mistaken(LayerError::HeaderValue(value.to_owned())),
        }
    }

    pub(super) fn check(&self) -> Result<(), LayerError> {
        self.mistake.clone().map_or(Ok(()), Err)
    }
}

impl Default for Marker {
    fn default() -> Self {
        Self {
            name: HeaderName::from_static("idempotent-replayed"),
            value: HeaderValue::from_static("true"),
            mistake: None,
        }
    }
}

/// The moment `retention` after `now_ms`, which is in milliseconds since the epoch, as an IMF-fixdate (RFC 9110, section
/// 5.6.7). Rounded down, so that nobody counts on a second that is not there; at the latest the end of the year 9999, the
/// last that such a date can name.
pub(super) fn expiry(now_ms: u64, retention: Duration) -> HeaderValue {
    const LAST_S: u64 = 253_402_300_799;
    let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
    let at_s = (now_ms.saturating_add(retention_ms) / 1000).min(LAST_S);
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(at_s));
    HeaderValue::try_from(date).expect("a date is visible ASCII")
}

/// The fields but those of this name. (`HeaderMap::remove` would change the order of the others.)
pub(super) fn without(headers: &HeaderMap, unwanted: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut kept = HeaderMap::with_capacity(headers.keys_len());
    for (name, value) in headers.iter().filter(|(name, _)| !unwanted(name)) {
        kept.append(name.clone(), value.clone());
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_a_field_without_a_meaning_of_its_own() {
        let mistake = |name, value| Marker::new(name, value).check().unwrap_err();
        let marker = Marker::new("X-Replay", "yes, again");
        assert_eq!(
            (marker.check(), marker.name.as_str(), marker.value.as_bytes()),
            (Ok(()), "x-replay", &b"yes, again"[..])
        );
        for name in ["", "a b", "\u{e9}"] {
            assert_eq!(mistake(name, "true"), LayerError::HeaderName(name.into()));
        }
        for name in ["connection", "content-length", "content-type", "date", "idempotency-expires", "trailer"] {
            assert_eq!(mistake(name, "true"), LayerError::Marker(name.into()));
        }
        for value in ["", " ", " true", "true\t", "a\nb", "\0", "\u{7f}"] {
            assert_eq!(mistake("x-replay", value), LayerError::HeaderValue(value.into()), "{value:?}");
        }
    }

    #[test]
    fn an_expiry_is_a_fixdate_rounded_down() {
        let s = Duration::from_secs;
        for (now_ms, retention, date) in [
            (0, s(0), "Thu, 01 Jan 1970 00:00:00 GMT"),
            (999, s(1), "Thu, 01 Jan 1970 00:00:01 GMT"),
            (784_111_777_600, Duration::from_millis(399), "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_777_600, Duration::from_millis(400), "Sun, 06 Nov 1994 08:49:38 GMT"),
            (784_111_777_000, s(86_400), "Mon, 07 Nov 1994 08:49:37 GMT"),
            (u64::MAX, Duration::MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            assert_eq!(expiry(now_ms, retention), date);
        }
    }

    /// Copying a map with room for all of its lines panicked: the room of a map is counted in names.
    #[test]
    fn a_field_of_very_many_lines_can_be_copied() {
        let mut headers = HeaderMap::new();
        for _ in 0..40_000 {
            headers.append("x-a", HeaderValue::from_static("1"));
        }
        headers.append("x-b", HeaderValue::from_static("2"));
        assert_eq!(without(&headers, |name| name == "x-b").len(), 40_000);
    }
}
