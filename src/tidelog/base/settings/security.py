"""The broker settings of TLS, logging in and access control, under Kafka's names.

None of them has an effect yet: `no_effect` says what is done with them. Most may be given for one
listener alone, as `listener.name.<listener>.<setting>`.
"""

from typing import Final

from tidelog.base.settings.kinds import (
    Setting,
    at_least,
    matching,
    not_empty,
    one_of,
    some_of,
)

TLS_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
STORE_TYPES: Final = ("JKS", "PKCS12", "PEM")
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
ACL_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
SUPER_USERS: Final = matching(
    r"(\s*User:[^;]+(;\s*User:[^;]+)*;?)?", "User:name separated by semicolons"
)

_TLS: Final = (
    Setting(
        name="ssl.protocol",
        kind="string",
        default="TLSv1.3",
        bound=one_of(*TLS_VERSIONS),
        doc="The newest TLS version that is offered.",
    ),
    Setting(
        name="ssl.enabled.protocols",
        kind="list",
        default=("TLSv1.2", "TLSv1.3"),
        bound=some_of(*TLS_VERSIONS),
        doc="The TLS versions that are accepted.",
    ),
    Setting(
        name="ssl.cipher.suites",
        kind="list",
        default=(),
        doc="The cipher suites that are accepted; empty leaves it to the library.",
    ),
    Setting(
        name="ssl.keystore.type",
        kind="string",
        default="JKS",
        bound=one_of(*STORE_TYPES),
        doc="The format of the key store.",
    ),
    Setting(
        name="ssl.keystore.location",
        kind="string",
        default=None,
        bound=not_empty(),
        doc="The file with the broker's certificate and key.",
    ),
    Setting(
        name="ssl.keystore.password",
        kind="password",
        default=None,
        doc="The password of the key store.",
    ),
    Setting(
        name="ssl.keystore.key",
        kind="password",
        default=None,
        doc="The private key itself in PEM form, in place of a file.",
    ),
    Setting(
        name="ssl.keystore.certificate.chain",
        kind="password",
        default=None,
        doc="The certificate chain itself in PEM form, in place of a file.",
    ),
    Setting(
        name="ssl.key.password",
        kind="password",
        default=None,
        doc="The password of the private key.",
    ),
    Setting(
        name="ssl.truststore.type",
        kind="string",
        default="JKS",
        bound=one_of(*STORE_TYPES),
        doc="The format of the trust store.",
    ),
    Setting(
        name="ssl.truststore.location",
        kind="string",
        default=None,
        bound=not_empty(),
        doc="The file with the certificates that clients' are checked against.",
    ),
    Setting(
        name="ssl.truststore.password",
        kind="password",
        default=None,
        doc="The password of the trust store.",
    ),
    Setting(
        name="ssl.truststore.certificates",
        kind="password",
        default=None,
        doc="The trusted certificates themselves in PEM form, in place of a file.",
    ),
    Setting(
        name="ssl.endpoint.identification.algorithm",
        kind="string",
        default="https",
        bound=one_of("https", "HTTPS", ""),
        doc="Whether another broker's certificate must name its host; empty is no.",
    ),
    Setting(
        name="ssl.client.auth",
        kind="string",
        default="none",
        bound=one_of("required", "requested", "none"),
        doc="Whether clients must, may or need not show a certificate.",
    ),
    Setting(
        name="ssl.principal.mapping.rules",
        kind="string",
        default="DEFAULT",
        bound=not_empty(),
        doc="How a certificate's name becomes a user's name.",
    ),
    Setting(
        name="ssl.allow.dn.changes",
        kind="boolean",
        default=False,
        doc="Whether a new key store may carry another name than the old one.",
    ),
    Setting(
        name="ssl.allow.san.changes",
        kind="boolean",
        default=False,
        doc="Whether a new key store may leave out alternative names of the old one.",
    ),
)

_SASL: Final = (
    Setting(
        name="sasl.enabled.mechanisms",
        kind="list",
        default=("GSSAPI",),
        bound=some_of("GSSAPI", *SASL_MECHANISMS),
        doc="The ways to log in that a SASL listener offers.",
    ),
    Setting(
        name="sasl.mechanism.inter.broker.protocol",
        kind="string",
        default="GSSAPI",
        bound=one_of("GSSAPI", *SASL_MECHANISMS),
        doc="The way brokers log in to each other.",
    ),
    Setting(
        name="sasl.jaas.config",
        kind="password",
        default=None,
        doc="The users of PLAIN, or the broker's own user and password, in Kafka's JAAS form.",
    ),
    Setting(
        name="sasl.server.max.receive.size",
        kind="int",
        default=512 << 10,
        bound=at_least(1),
        doc="The largest message that is read before a client has logged in.",
    ),
    Setting(
        name="connections.max.reauth.ms",
        kind="long",
        default=0,
        bound=at_least(0),
        doc="How long a login is good for; 0 is for the whole connection.",
    ),
)

_ACCESS: Final = (
    Setting(
        name="authorizer.class.name",
        kind="string",
        default="",
        bound=one_of("", ACL_AUTHORIZER),
        doc="Kafka's name for its ACLs in ZooKeeper turns access control on; empty is off.",
    ),
    Setting(
        name="super.users",
        kind="string",
        default="",
        bound=SUPER_USERS,
        doc="Users that may do everything, as User:name separated by semicolons.",
    ),
    Setting(
        name="allow.everyone.if.no.acl.found",
        kind="boolean",
        default=False,
        doc="Whether everyone may use what has no ACL.",
    ),
    Setting(
        name="password.encoder.secret",
        kind="password",
        default=None,
        bound=not_empty(),
        doc="The secret that passwords set while the broker runs are stored under.",
    ),
    Setting(
        name="password.encoder.old.secret",
        kind="password",
        default=None,
        bound=not_empty(),
        doc="The secret before the last change, needed once to read what was stored under it.",
    ),
)

SECURITY: Final = (*_TLS, *_SASL, *_ACCESS)
