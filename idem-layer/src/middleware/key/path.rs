use super::super::error::LayerError;
use super::percent::Rules;
use super::read::{ExtractError, text};
use crate::protocol::{Key, KeyError};

/// A path in which some segments are captured, such as `/orders/{order_no}/pay`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Template(Box<[Segment]>);

#[derive(Debug, PartialEq, Eq)]
enum Segment {
    Literal(Box<str>),
    Captured(Box<str>),
}

impl Template {
    pub(super) fn parse(template: &str) -> Result<Self, LayerError> {
        let malformed = || LayerError::PathTemplate(template.to_owned());
        let segments = template.strip_prefix('/').ok_or_else(malformed)?.split('/');
        let segments: Box<[_]> = segments.map(|s| Segment::parse(s).ok_or_else(malformed)).collect::<Result<_, _>>()?;
        let names = || segments.iter().filter_map(Segment::name);
        if names().enumerate().any(|(at, name)| names().take(at).any(|earlier| earlier == name)) {
            return Err(malformed());
        }
        match names().next() {
            Some(_) => Ok(Self(segments)),
            None => Err(LayerError::NoCapture(template.to_owned())),
        }
    }

    /// How many segments are captured.
    pub(super) fn captures(&self) -> usize {
        self.0.iter().filter_map(Segment::name).count()
    }

    /// The key that a path has by this template: its captured segments, decoded. Nothing where the path does not fit.
    pub(super) fn key(&self, path: &str) -> Result<Option<Key>, ExtractError> {
        let Some(segments) = path.strip_prefix('/').map(|path| path.split('/')) else { return Ok(None) };
        if !self.fits(segments.clone()) {
            return Ok(None);
        }
        let captured = self.0.iter().zip(segments).filter(|(part, _)| part.name().is_some());
        let mut keys = captured.map(|(_, segment)| decoded(segment));
        match self.captures() {
            1 => keys.next().transpose(),
            _ => Ok(Some(Key::all_of(keys.collect::<Result<Vec<_>, _>>()?)?)),
        }
    }

    fn fits<'p>(&self, mut path: impl Iterator<Item = &'p str>) -> bool {
        let each = self.0.iter().all(|part| match (part, path.next()) {
            (Segment::Literal(literal), Some(segment)) => **literal == *segment,
            (Segment::Captured(_), segment) => segment.is_some(),
            (Segment::Literal(_), None) => false,
        });
        each && path.next().is_none()
    }
}

impl Segment {
    fn parse(segment: &str) -> Option<Self> {
        let Some(inside) = segment.strip_prefix('{') else {
            // A path has none of these, so that nothing would ever fit.
            let is_path =
                !segment.contains(['{', '}', '?', '#']) && segment.bytes().all(|byte| byte.is_ascii_graphic());
            return is_path.then(|| Self::Literal(segment.into()));
        };
        let name = inside.strip_suffix('}')?;
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        is_name.then(|| Self::Captured(name.into()))
    }

    fn name(&self) -> Option<&str> {
        match self {
            Self::Captured(name) => Some(name),
            Self::Literal(_) => None,
        }
    }
}

fn decoded(segment: &str) -> Result<Key, ExtractError> {
    Rules::Path.check(segment.as_bytes()).map_err(|_| ExtractError::Escape("path"))?;
    match &*Rules::Path.decode(segment.as_bytes()) {
        [] => Err(KeyError::Empty.into()),
        bytes => Ok(text(bytes)?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn key(template: &str, path: &str) -> Result<Option<String>, ExtractError> {
        Template::parse(template).unwrap().key(path).map(|key| key.map(|key| key.text().into_owned()))
    }

    fn is(text: &str) -> Result<Option<String>, ExtractError> {
        Ok(Some(text.to_owned()))
    }

    #[test]
    fn captured_segments_are_the_key() {
        let pay = |path| key("/orders/{order_no}/pay", path);
        assert_eq!(pay("/orders/o-1/pay"), is("o-1"));
        assert_eq!(pay("/orders/a%20b%2fc+d/pay"), is("a b/c+d"));
        assert_eq!(pay("/orders/%E2%82%AC/pay"), is("€"));
        for other in [
            "/orders/o-1",
            "/orders/o-1/pay/",
            "/orders/o-1/pay/x",
            "/orders/o-1/PAY",
            "/orders/o-1/p%61y",
            "/Orders/o-1/pay",
            "/orders/a/b/pay",
            "/",
            "*",
            "",
        ] {
            assert_eq!(pay(other), Ok(None), "{other}");
        }
        assert_eq!(key("/{a}", "/x"), is("x"));
        assert_eq!(key("/{a}/", "/x"), Ok(None));
        assert_eq!(key("/{a}/", "/x/"), is("x"));
    }

    #[test]
    fn several_captures_are_the_parts_of_one_key() {
        let of = |path| Template::parse("/{shop}/orders/{no}").unwrap().key(path).unwrap().unwrap();
        let parts = |parts: [&str; 2]| Key::all_of(parts.map(|part| Key::new(part).unwrap())).unwrap();
        assert_eq!(of("/s/orders/1"), parts(["s", "1"]));
        assert_eq!(of("/s%2C1/orders/1"), parts(["s,1", "1"]));
        assert_eq!(Template::parse("/{shop}/orders/{no}").unwrap().captures(), 2);
    }

    #[test]
    fn a_captured_segment_that_is_no_key_is_an_error_and_not_another_path() {
        for (path, error) in [
            ("/orders//pay", ExtractError::Key(KeyError::Empty)),
            ("/orders/%20/pay", ExtractError::Key(KeyError::Empty)),
            ("/orders/a%0Ab/pay", ExtractError::Key(KeyError::Character)),
            ("/orders/%ff/pay", ExtractError::Key(KeyError::Character)),
            ("/orders/%/pay", ExtractError::Escape("path")),
            ("/orders/%4/pay", ExtractError::Escape("path")),
            ("/orders/%+1/pay", ExtractError::Escape("path")),
        ] {
            assert_eq!(key("/orders/{order_no}/pay", path), Err(error), "{path}");
        }
        assert_eq!(key("/{a}/{b}", "/x/"), Err(KeyError::Empty.into()));
        assert_eq!(key("/{a}/{b}", "//x"), Err(KeyError::Empty.into()));
        assert_eq!(key("/{a}/{b}", &format!("/{}/{}", "a".repeat(200), "b".repeat(56))), Err(KeyError::TooLong.into()));
    }

    #[test]
    fn a_template_that_nothing_could_fit_is_a_mistake() {
        for template in [
            "",
            "orders/{no}",
            "/orders/{no",
            "/orders/no}",
            "/orders/{}",
            "/orders/{{no}}",
            "/orders/{no}x",
            "/orders/x{no}",
            "/{a}{b}",
            "/{*rest}",
            "/{a b}",
            "/{a}/{a}",
            "/o rders/{no}",
            "/ö/{no}",
            "/orders?no={no}",
            "/orders#/{no}",
        ] {
            assert_eq!(Template::parse(template), Err(LayerError::PathTemplate(template.to_owned())));
        }
        for template in ["/", "/orders", "/orders/no/"] {
            assert_eq!(Template::parse(template), Err(LayerError::NoCapture(template.to_owned())));
        }
    }
}
