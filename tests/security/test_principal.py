"""Principals' text and ssl.principal.mapping.rules, against Kafka's documented behaviour."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from security.principal import (
    MappingRules,
    NoRuleMatchesError,
    PrincipalError,
    parse_principal,
    user,
)


@given(st.text(min_size=1).filter(lambda text: ":" not in text), st.text())
def test_a_principal_is_split_at_its_first_colon(kind: str, name: str) -> None:
    assert parse_principal(f"{kind}:{name}") == (kind, name)


def test_a_users_principal_can_be_read_again() -> None:
    assert user("CN=a,OU=b:c") == "User:CN=a,OU=b:c"
    assert parse_principal(user("CN=a,OU=b:c")) == ("User", "CN=a,OU=b:c")


@pytest.mark.parametrize("text", ["", "alice", ":alice"])
def test_a_text_without_type_is_no_principal(text: str) -> None:
    with pytest.raises(PrincipalError, match=r"not of the form Type:name, e\.g\. User:alice"):
        parse_principal(text)


SEVERAL = ", ".join(
    (
        r"RULE:^CN=(.*?),OU=Services.*$/$1/L",
        r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("rules", "subject", "name"),
    [
        (SEVERAL, "CN=Mill,OU=Services,O=Org,C=US", "mill"),
        (SEVERAL, "CN=Mill,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "mill@sme"),
        (SEVERAL, "cn=mill,ou=sme,dc=mycp,dc=com", "MILL@SME"),
        (SEVERAL, "cN=mill,OU=Soft,O=Sun", "MILL"),
        (SEVERAL, "OU=Soft,O=Sun,C=US", "OU=Soft,O=Sun,C=US"),
        ("DEFAULT", "", ""),
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"CN=Low\, Ada,OU=ITZ", r"Low\, Ada"),
        # The whole subject must match, not a part.
        ("RULE:CN=(a)/$1/,DEFAULT", "CN=a,OU=b", "CN=a,OU=b"),
        # $12 is the first group and a 2; $9 is no group, and $0 is all that matched.
        ("RULE:(a)/$12$9[$0]/", "a", "a2$9[a]"),
        ("RULE:(a)(b)?/$1-$2-/", "a", "a--"),  # a group that took no part is empty
        ("RULE:(?<who>a+)/${who}!/", "aa", "aa!"),
        (r"RULE:(a)/\$1\//", "a", "$1/"),
        (r"RULE:a\/b/x/", "a/b", "x"),
        ("RULE:(a*?)/<$1>/", "aa", "<>a<>a<>"),  # each occurrence, as Java's replaceAll
        ("RULE:(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)(k)(l)/$12$11/", "abcdefghijkl", "lk"),
        ("RULE:(a)(b)(c)(d)(e)(f)(g)(h)(i)(j)/$10$11/", "abcdefghij", "ja1"),
        (" ,RULE:x/y/ , ,,DEFAULT,", "x", "y"),
        (" ,RULE:x/y/ , ,,DEFAULT,", "z", "z"),
        ("RULE:x/y/,RULE:(.+)/z$1/U", "\u00e9", "Z\u00c9"),
        ("RULE:(.*)/z$1/", "a", "zaz"),  # the second occurrence is empty, at the end
        (r"RULE:(\w)/z/,DEFAULT", "\u00e9", "\u00e9"),  # Java's \w is ASCII
    ],
)
def test_the_first_rule_that_matches_gives_the_name(rules: str, subject: str, name: str) -> None:
    assert MappingRules(rules).name_of(subject) == name


def test_a_subject_that_no_rule_matches_is_refused_with_its_text() -> None:
    for rules in ("", "RULE:CN=a/b/"):
        with pytest.raises(NoRuleMatchesError, match="matches the subject 'CN=b'"):
            MappingRules(rules).name_of("CN=b")


def test_without_rules_the_subject_is_the_name() -> None:
    assert MappingRules().name_of("CN=b") == "CN=b"


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAUL",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=S.*/$1",
        "rule:^CN=(.*?)$/$1/",
        "RULE:^CN=(.*?)$/$1/L/U",
        "RULE:^CN=(.*?)$/L",
        "RULE:^CN=(.*?)$/LU",
        "DEFAULT,RULE:a/b",
    ],
)
def test_a_text_that_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(PrincipalError, match="neither DEFAULT nor of the form RULE:pattern"):
        MappingRules(rules)


def test_a_pattern_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(PrincipalError, match=r"the pattern of 'RULE:\(a/b/' cannot be read"):
        MappingRules("RULE:(a/b/")


@pytest.mark.parametrize("replacement", ["$1", "$x", "a$", "${who}"])
def test_a_reference_to_no_group_is_refused_before_a_client_comes(replacement: str) -> None:
    with pytest.raises(PrincipalError, match="refers to no group of its pattern"):
        MappingRules(f"RULE:a/{replacement}/")


def test_the_whole_match_needs_no_group() -> None:
    assert MappingRules("RULE:a+/<$0>/").name_of("aa") == "<aa>"
